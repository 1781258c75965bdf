import { serial } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { type KnownError, knownError } from "../../rotation/manager/health.ts";
import type { Logger } from "../config/log.ts";
import { type JwkSet, entriesFor } from "../../publish/jwk-set.ts";
import { type PublishedSet, together } from "./published-set.ts";

/** Where the keys of a service come from: a manager, files, or both. */
interface Sources {
  readonly managed: PublishedSet | undefined;
  readonly files: JwkSet;
}

interface Options {
  /** Reads the files again. */
  readonly load: () => Promise<JwkSet>;
  readonly publish: (next: PublishedSet) => void;
  readonly log: Logger;
  readonly clock: Clock;
}

/** The keys that a service publishes. */
export interface PublishedKeys {
  readonly current: PublishedSet;
  /** The active one first. */
  readonly kids: readonly string[];
  /** Why the files were refused at the last reading. */
  readonly refused: KnownError | undefined;
  takeManaged(this: void, managed: PublishedSet): Promise<void>;
  /** Resolves to `false` if the files are bad: that is logged, and the old keys stay in use. */
  reload(this: void): Promise<boolean>;
  /** Resolves when no change is under way. */
  settled(this: void): Promise<void>;
}

/** Keeps what is published. @param current is published already: the sources together */
export function createPublishedKeys(
  current: PublishedSet,
  sources: Sources,
  { load, publish, log, clock }: Options,
): PublishedKeys {
  // One change after the other, so that none undoes a newer one.
  const inTurn = serial();
  let refused: KnownError | undefined;
  const kidsFor = (use: "sig" | "enc"): string[] => entriesFor(use, current.set.entries).map(({ jwk }) => jwk.kid);

  async function change(next: Sources): Promise<void> {
    current = await together(next.managed, next.files);
    publish(current);
    sources = next;
  }

  async function reload(): Promise<boolean> {
    try {
      await change({ ...sources, files: await load() });
      refused = undefined;
      log.info({ kids: kidsFor("sig"), encryptionKeys: kidsFor("enc").length }, "keys reloaded");
      return true;
    } catch (error) {
      refused = knownError(error, clock.now());
      log.error({ code: refused.code }, `new keys refused, the old ones stay in use: ${refused.message}`);
      return false;
    }
  }

  return {
    get current() {
      return current;
    },
    get kids() {
      return kidsFor("sig");
    },
    get refused() {
      return refused;
    },
    takeManaged: (managed) => inTurn(() => change({ ...sources, managed })),
    reload: () => inTurn(reload),
    settled: () => inTurn(async () => {}),
  };
}
