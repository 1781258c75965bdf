import { shellWord } from "../../base/printable.ts";
import { type KeyRecord, uriOf } from "../../rotation/rules/key-records.ts";

/** The remedy for a fault, and a command that applies the remedy or shows more information. */
export interface Remedy {
  readonly remedy: string;
  readonly command: string;
  /** Section of `docs/` with details, such as `operations.md#replicas`. */
  readonly guide?: string | undefined;
}

/** Returns the URL of a section of `docs/`. */
export const guideUrl = (guide: string): string => `https://github.com/jwksd/jwksd/blob/main/docs/${guide}`;

/** Returns a remedy with the command that lists replicas and targets. */
export function listing(remedy: string): Remedy {
  const guide = "operations.md#replicas";
  return { remedy: `${remedy} This command lists replicas and targets:`, command: "jwksd replicas", guide };
}

const outage: Remedy = {
  remedy: "Make the store reachable again; jwksd retries automatically. This command shows whether it is reachable:",
  command: "jwksd keys",
  guide: "alerts.md#jwksdstoreunreachable",
};

const lostStore: Remedy = {
  remedy:
    'Restore the most recent backup of the store; see "A lost store" in docs/emergencies.md. This command lists the keys that the store contains now:',
  command: "jwksd keys",
  guide: "emergencies.md#a-lost-store",
};

const lostWrappingKey: Remedy = {
  remedy:
    'Restore the wrapping key and restart. If it is permanently lost, see "A lost wrapping key" in docs/emergencies.md. This command lists the keys:',
  command: "jwksd keys",
  guide: "emergencies.md#a-lost-wrapping-key",
};

const changedStore: Remedy = {
  remedy:
    'Find out who changed the store; see "A store that is not authentic" in docs/emergencies.md. This command shows its content without changing it:',
  command: "jwksd keys rewrap --dry-run",
  guide: "emergencies.md#a-store-that-is-not-authentic",
};

const remedies: Readonly<Record<string, Remedy>> = {
  ERR_STORE_UNAVAILABLE: outage,
  ERR_COMMIT_UNKNOWN: outage,
  ERR_STORE_READ_ONLY: listing("Start a process that can write to the store. It then takes the step."),
  ERR_STORE_NOT_AUTHENTIC: changedStore,
  ERR_STORE_EMPTY: lostStore,
  ERR_RECORDS_INVALID: lostStore,
  ERR_WRAPPING_KEY_MISSING: lostWrappingKey,
  ERR_WRAPPED_KEY: lostWrappingKey,
};

/** Returns the remedy for an error from the manager. */
export function remedyOf(code: string, record?: KeyRecord): Remedy {
  const known = remedies[code];
  if (known !== undefined) return known;
  const uri = record && uriOf(record);
  if (uri !== undefined || code.includes("_SIGNER_")) {
    return {
      remedy: "Fix the HSM or key service; jwksd retries automatically. This command tests it with a key:",
      command: `jwksd signer check ${uri === undefined ? "URI" : shellWord(uri)}`,
      guide: "alerts.md#jwksdsignerfailing",
    };
  }
  const meaning = `See docs/errors.md for ${code}; jwksd retries automatically.`;
  return { remedy: `${meaning} This command lists the keys in the store:`, command: "jwksd keys", guide: "errors.md" };
}
