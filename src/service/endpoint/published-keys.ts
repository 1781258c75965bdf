import { serial } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { type KnownError, knownError } from "../../rotation/manager/health.ts";
import type { Logger } from "../config/logger.ts";
import { type PublicKeys, together } from "./public-keys.ts";

/** Where the keys of a service come from: a manager, files, or both. */
interface Sources {
  readonly managed: PublicKeys | undefined;
  readonly files: PublicKeys;
}

interface Options {
  /** Reads the files again. */
  readonly load: () => Promise<PublicKeys>;
  /** Refuses keys that clash. */
  readonly publish: (keys: PublicKeys) => Promise<void>;
  readonly log: Logger;
  readonly clock: Clock;
}

/** The keys that a service publishes. */
export interface PublishedKeys {
  readonly current: PublicKeys;
  /** The active one first. */
  readonly kids: readonly string[];
  /** Why the files were refused at the last reading. */
  readonly refused: KnownError | undefined;
  takeManaged(this: void, managed: PublicKeys): Promise<void>;
  /** Resolves to `false` if the files are bad: that is logged, and the old keys stay in use. */
  reload(this: void): Promise<boolean>;
  /** Resolves when no change is under way. */
  settled(this: void): Promise<void>;
}

/** Keeps what is published. @param sources are published already */
export function createPublishedKeys(sources: Sources, { load, publish, log, clock }: Options): PublishedKeys {
  // One change after the other, so that none undoes a newer one.
  const inTurn = serial();
  let refused: KnownError | undefined;
  const current = (): PublicKeys => together(sources.managed, sources.files);
  const kids = (): string[] => current().keyset.map(({ kid }) => kid);

  async function change(next: Sources): Promise<void> {
    await publish(together(next.managed, next.files));
    sources = next;
  }

  async function reload(): Promise<boolean> {
    try {
      await change({ ...sources, files: await load() });
      refused = undefined;
      log.info({ kids: kids(), encryptionKeys: current().encryptionKeyset.length }, "keys reloaded");
      return true;
    } catch (error) {
      refused = knownError(error, clock.now());
      log.error({ code: refused.code }, `new keys refused, the old ones stay in use: ${refused.message}`);
      return false;
    }
  }

  return {
    get current() {
      return current();
    },
    get kids() {
      return kids();
    },
    get refused() {
      return refused;
    },
    takeManaged: (managed) => inTurn(() => change({ ...sources, managed })),
    reload: () => inTurn(reload),
    settled: () => inTurn(async () => {}),
  };
}
