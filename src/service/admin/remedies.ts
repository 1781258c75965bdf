import { shellWord } from "../../base/printable.ts";
import { type KeyRecord, uriOf } from "../../rotation/rules/records.ts";

/** What to do about a fault, in words, and the command for it or to look further. */
export interface Remedy {
  readonly remedy: string;
  readonly command: string;
  /** The section of `docs/` that says more, such as `operations.md#replicas`. */
  readonly guide?: string | undefined;
}

/** Where the section of a remedy is. */
export const guideUrl = (guide: string): string => `https://github.com/jwksd/jwksd/blob/main/docs/${guide}`;

/** A remedy with the command that lists replicas and targets. */
export function listing(remedy: string): Remedy {
  const guide = "operations.md#replicas";
  return { remedy: `${remedy} This command lists replicas and targets:`, command: "jwksd replicas", guide };
}

const outage: Remedy = {
  remedy:
    "Make the store reachable again; jwksd tries it again by itself. This command tells whether it can be reached:",
  command: "jwksd keys",
  guide: "alerts.md#jwksdstoreunreachable",
};

const lostStore: Remedy = {
  remedy:
    'Put the newest copy of the store back: read "A lost store" in docs/emergencies.md. This command shows what the store holds now:',
  command: "jwksd keys",
  guide: "emergencies.md#a-lost-store",
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
