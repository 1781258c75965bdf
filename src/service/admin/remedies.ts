import { resolve } from "node:path";
import { uriOf } from "../../rotation/rules/records.ts";
import type { KeyRecord } from "../../rotation/rules/records.ts";
import { type Settings, flagName } from "../config/setting-definitions.ts";
import { hasPassword } from "../config/database-url.ts";
import { storeSettingsOf } from "../config/store-settings.ts";

/** What to do about a fault, in words, and the command for it or to look further. */
export interface Remedy {
  readonly remedy: string;
  readonly command: string;
  /** The section of `docs/` that says more, such as `operations.md#replicas`. */
  readonly guide?: string | undefined;
}

/** Where the section of a remedy is. */
export const guideUrl = (guide: string): string => `https://github.com/jwksd/jwksd/blob/main/docs/${guide}`;

/** A remedy with the command that lists replicas and copies. */
export function listing(remedy: string): Remedy {
  const guide = "operations.md#replicas";
  return { remedy: `${remedy} This command lists replicas and copies:`, command: "jwksd replicas", guide };
}

const outage: Remedy = {
  remedy:
    "Make the store reachable again; jwksd tries it again by itself. This command tells whether it can be reached:",
  command: "jwksd keys",
  guide: "alerts.md#jwksdstoreunreachable",
};

const lostStore: Remedy = {
  remedy:
    'Put the newest copy of the store back: read "The store is lost" in docs/emergencies.md. This command shows what the store holds now:',
  command: "jwksd keys",
  guide: "emergencies.md#the-store-is-lost",
};

const lostWrappingKey: Remedy = {
  remedy:
    'Put the wrapping key back and restart. If it is lost for good, read "A lost wrapping key" in docs/emergencies.md. This command lists the keys:',
  command: "jwksd keys",
  guide: "emergencies.md#a-lost-wrapping-key",
};

const changedStore: Remedy = {
  remedy:
    'Find out who has changed the store: read "A store that is not authentic" in docs/emergencies.md. This command shows what is there, and changes nothing:',
  command: "jwksd keys rewrap --dry-run",
  guide: "emergencies.md#a-store-that-is-not-authentic",
};

const remedies: Readonly<Record<string, Remedy>> = {
  ERR_STORE_UNAVAILABLE: outage,
  ERR_COMMIT_UNKNOWN: outage,
  ERR_STORE_READ_ONLY: listing("Let a process run that may write the store; it takes the step."),
  ERR_STORE_NOT_AUTHENTIC: changedStore,
  ERR_STORE_EMPTY: lostStore,
  ERR_RECORDS_INVALID: lostStore,
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
      guide: "alerts.md#jwksdsignerfailing",
    };
  }
  const meaning = `It is tried again by itself. docs/errors.md says what ${code} means.`;
  return { remedy: `${meaning} This command shows what the store holds:`, command: "jwksd keys", guide: "errors.md" };
}

/** A text as one quoted word of a shell. `printf` makes the characters that are no printable ASCII. */
export function shellWord(text: string): string {
  if (/^[\w.:/@%+=,][\w.:/@%+=,-]*$/.test(text)) return text;
  if (/^[ -~]*$/.test(text)) return `'${text.replaceAll("'", `'\\''`)}'`;
  const octets = [...new TextEncoder().encode(text)].map((octet) => `\\${octet.toString(8).padStart(3, "0")}`);
  return `"$(printf '${octets.join("")}')"`;
}

/**
 * The flags by which a command on this machine finds the same store and issuer, as words of a shell. A URL with a password is left out: it is
 * in JWKSD_STORE.
 */
export function commandFlags(settings: Settings): string {
  const { store, data, issuer, wrappingKeyFile } = settings;
  const { path } = storeSettingsOf(settings);
  const url = store !== undefined && path !== undefined ? `sqlite:${path}` : store;
  const flags = {
    data: store === undefined ? resolve(data) : undefined,
    store: url === undefined || hasPassword(url) ? undefined : url,
    issuer,
    wrappingKeyFile: wrappingKeyFile && resolve(wrappingKeyFile),
  };
  const given = Object.entries(flags).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => `${flagName(name)} ${shellWord(value as string)}`).join(" ");
}
