import { serial } from "../../base/async.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { KeyMaterialError } from "../../base/errors.ts";
import { readEncryptionKeyset, readKeyset } from "../../node/read-key-files.ts";
import { jwkSetOf } from "../../publish/jwk-set.ts";
import { type Keysets, checkEncryption, checkSigning } from "../../publish/keyset-check.ts";
import { knownError } from "../../rotation/manager/health.ts";
import type { KnownError } from "../../rotation/manager/types.ts";
import type { Logger } from "../config/logger.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { fingerprint, watchPaths } from "../config/watch-files.ts";

/** Keys that a service reads from files. If the signing keys are managed, `keyset` is empty. */
export interface FileKeys {
  readonly keysets: Keysets;
  /** Reason why the files were rejected when they were last read. */
  readonly refused: KnownError | undefined;
  /**
   * Reads the files again.
   *
   * @param take publishes the keys
   * @throws the errors from reading the files and from `take`; the old keys stay in use, and `refused` contains the
   * reason
   */
  reload(this: void, take: (keysets: Keysets) => Promise<void>): Promise<void>;
  /** Calls `onChange` whenever the files have changed. */
  watch(onChange: () => Promise<unknown>): { stop(): void };
  /** Resolves when no reload is in progress. */
  settled(this: void): Promise<void>;
}

type KeyPaths = Pick<Settings, "keys" | "encryptionKeys">;

/**
 * Reads the key files.
 *
 * @throws the same errors as `readKeyset` and `checkSigning`
 */
export async function openFileKeys(
  settings: KeyPaths,
  log: Pick<Logger, "warn">,
  clock: Clock = systemClock,
): Promise<FileKeys> {
  const paths = pathsOf(settings);
  // Taken before the files are read, so that no change is missed.
  const baseline = await fingerprint(paths);
  let keysets = await loadKeyFiles(settings, log);
  let refused: KnownError | undefined;
  // One reload at a time, so that an earlier reload cannot undo a later one.
  const inTurn = serial();

  return {
    get keysets() {
      return keysets;
    },
    get refused() {
      return refused;
    },
    reload: (take) =>
      inTurn(async () => {
        try {
          const loaded = await loadKeyFiles(settings, log);
          await take(loaded);
          [keysets, refused] = [loaded, undefined];
        } catch (error) {
          refused = knownError(error, clock.now());
          throw error;
        }
      }),
    watch: (onChange) => watchPaths(paths, baseline, onChange),
    settled: () => inTurn(async () => {}),
  };
}

const pathsOf = ({ keys, encryptionKeys }: KeyPaths): string[] =>
  [keys, encryptionKeys].filter((path) => path !== undefined);

/** Reads and checks the key files. Private keys are also checked, but then discarded. */
export async function loadKeyFiles(settings: KeyPaths, log: Pick<Logger, "warn">): Promise<Keysets> {
  const { keys, encryptionKeys } = settings;
  const signing = keys === undefined ? undefined : await readKeyset(keys);
  const encryption = encryptionKeys === undefined ? undefined : await readEncryptionKeyset(encryptionKeys);
  const encryptionKeyset = encryption?.entries ?? [];
  try {
    const { entries } = signing === undefined ? { entries: [] } : await checkSigning(signing.entries);
    await jwkSetOf([...entries, ...(await checkEncryption(encryptionKeyset))]);
    for (const warning of [...(signing?.warnings ?? []), ...(encryption?.warnings ?? [])]) log.warn(warning);
    return { keyset: entries.map(({ jwk }) => ({ kid: jwk.kid, publicKey: jwk })), encryptionKeyset };
  } catch (error) {
    if (!(error instanceof KeyMaterialError)) throw error;
    throw new KeyMaterialError(error.code, `${pathsOf(settings).join(" and ")}: ${error.message}`);
  }
}
