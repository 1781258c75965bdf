import { uriOf } from "../../rotation/rules/records.ts";
import type { KeyRecord } from "../../rotation/store/store.ts";

/** What to do about a fault, in words, and the command for it or to look further. */
export interface Remedy {
  readonly remedy: string;
  readonly command: string;
}

const outage: Remedy = {
  remedy:
    "Make the store reachable again; jwksd tries it again by itself. This command tells whether it can be reached:",
  command: "jwksd keys",
};

const lostWrappingKey: Remedy = {
  remedy:
    'Put the wrapping key back and restart. If it is lost for good, read "A lost wrapping key" in docs/operations.md. This command lists the keys:',
  command: "jwksd keys",
};

const changedStore: Remedy = {
  remedy:
    'Find out who has changed the store: read "A store that is not authentic" in docs/operations.md. This command shows what is there, and changes nothing:',
  command: "jwksd keys rewrap --dry-run",
};

const remedies: Readonly<Record<string, Remedy>> = {
  ERR_STORE_UNAVAILABLE: outage,
  ERR_COMMIT_UNKNOWN: outage,
  ERR_LEASE_ENDED: outage,
  ERR_STORE_NOT_AUTHENTIC: changedStore,
  ERR_RECORDS_INVALID: changedStore,
  ERR_WRAPPING_KEY_MISSING: lostWrappingKey,
  ERR_WRAPPED_KEY: lostWrappingKey,
};

/** What to do about an error of managing keys. */
export function remedyOf(code: string, record?: KeyRecord): Remedy {
  const known = remedies[code];
  if (known !== undefined) return known;
  const uri = record && uriOf(record);
  if (uri !== undefined || code.includes("_SIGNER_")) {
    return {
      remedy: "Mend the HSM or key service; jwksd tries it again by itself. This command tests it with a key:",
      command: `jwksd signer check ${uri === undefined ? "URI" : shellWord(uri)}`,
    };
  }
  const meaning = `It is tried again by itself. docs/errors.md says what ${code} means.`;
  return { remedy: `${meaning} This command shows what the store holds:`, command: "jwksd keys" };
}

/** A text as one quoted word of a shell. `printf` makes the characters that are no printable ASCII. */
export function shellWord(text: string): string {
  if (/^[\w.:/@%+=,][\w.:/@%+=,-]*$/.test(text)) return text;
  if (/^[ -~]*$/.test(text)) return `'${text.replaceAll("'", `'\\''`)}'`;
  const octets = [...new TextEncoder().encode(text)].map((octet) => `\\${octet.toString(8).padStart(3, "0")}`);
  return `"$(printf '${octets.join("")}')"`;
}
