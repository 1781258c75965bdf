import { serial } from "../../base/async.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { KeyMaterialError } from "../../base/errors.ts";
import { readEncryptionKeyset, readKeyset } from "../../node/key-files.ts";
import { type JwkSet, entriesFor, jwkSetOf } from "../../publish/jwk-set.ts";
import { checkEncryption, checkSigning } from "../../publish/keyset.ts";
import type { KnownError } from "../../rotation/manager/types.ts";
import { knownError } from "../../rotation/manager/health.ts";
import type { Logger } from "../config/log.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { fingerprint, watchPaths } from "../config/watch.ts";

/** The keys of a service: those of a manager, of files, or both. Signing keys are either managed or in files. */
export interface PublishedKeys {
  readonly current: JwkSet;
  /** Of the signing keys, the active one first. */
  readonly kids: readonly string[];
  /** Why the files were refused at the last reading. */
  readonly refused: KnownError | undefined;
  /** @throws KeyMaterialError they clash with those of the files, and what was published stays */
  takeManaged(this: void, managed: JwkSet): Promise<void>;
  /** Reads the files again. @throws what is wrong with them; the old keys stay in use, and `refused` says why */
  reload(this: void): Promise<void>;
  /** Calls back when the files have changed since they were read for the first time. */
  watch(onChange: () => Promise<unknown>): { stop(): void };
  /** Resolves when no change is under way. */
  settled(this: void): Promise<void>;
}

type KeyPaths = Pick<Settings, "keys" | "encryptionKeys">;

/** Reads the keys of files. Those of a manager come later. @throws see `readKeyset` and `checkSigning` */
export async function readPublishedKeys(
  settings: KeyPaths,
  log: Pick<Logger, "warn">,
  clock: Clock = systemClock,
): Promise<PublishedKeys> {
  const paths = pathsOf(settings);
  // Before the files, so that no change is missed.
  const baseline = await fingerprint(paths);
  let files = await loadKeyFiles(settings, log);
  let managed: JwkSet | undefined;
  let current = files;
  let refused: KnownError | undefined;
  // One change after the other, so that none undoes a newer one.
  const inTurn = serial();

  async function reload(): Promise<void> {
    try {
      const loaded = await loadKeyFiles(settings, log);
      current = await together(managed, loaded);
      [files, refused] = [loaded, undefined];
    } catch (error) {
      refused = knownError(error, clock.now());
      throw error;
    }
  }

  return {
    get current() {
      return current;
    },
    get kids() {
      return entriesFor("sig", current.entries).map(({ jwk }) => jwk.kid);
    },
    get refused() {
      return refused;
    },
    takeManaged: (next) =>
      inTurn(async () => {
        current = await together(next, files);
        managed = next;
      }),
    reload: () => inTurn(reload),
    watch: (onChange) => watchPaths(paths, baseline, onChange),
    settled: () => inTurn(async () => {}),
  };
}

const pathsOf = ({ keys, encryptionKeys }: KeyPaths): string[] =>
  [keys, encryptionKeys].filter((path) => path !== undefined);

/** Reads and checks the keys of files. Private parts are checked too, and not kept. */
export async function loadKeyFiles(settings: KeyPaths, log: Pick<Logger, "warn">): Promise<JwkSet> {
  const { keys, encryptionKeys } = settings;
  const signing = keys === undefined ? undefined : await readKeyset(keys);
  const encryption = encryptionKeys === undefined ? undefined : await readEncryptionKeyset(encryptionKeys);
  try {
    const { entries } = signing === undefined ? { entries: [] } : await checkSigning(signing.entries);
    const set = await jwkSetOf([...entries, ...(await checkEncryption(encryption?.entries ?? []))]);
    for (const warning of [...(signing?.warnings ?? []), ...(encryption?.warnings ?? [])]) log.warn(warning);
    return set;
  } catch (error) {
    if (!(error instanceof KeyMaterialError)) throw error;
    throw new KeyMaterialError(error.code, `${pathsOf(settings).join(" and ")}: ${error.message}`);
  }
}

/** @throws see `jwkSetOf` */
async function together(managed: JwkSet | undefined, files: JwkSet): Promise<JwkSet> {
  if (managed === undefined) return files;
  return files.entries.length === 0 ? managed : jwkSetOf([...managed.entries, ...files.entries]);
}
