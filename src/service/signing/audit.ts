import type { Clock } from "../../base/clock.ts";
import { SignerError, codeOf } from "../../base/errors.ts";

/** What was asked of a socket in one minute. Never what was signed. */
export interface SignCounts {
  readonly signed: number;
  /** Counts by error code. */
  readonly refused: Readonly<Record<string, number>>;
}

const everyMs = 60_000;
/** Signatures under way at once. */
const limits = { all: 1_024, ofOne: 64 } as const;

/** Bounds and counts what is asked of one socket. */
export interface Audit {
  /**
   * Signs for a connection, and counts what becomes of it. A connection that pipelines without end leaves room for the others.
   *
   * @throws SignerError `ERR_SIGNER_BUSY`, and what `work` throws
   */
  sign<T>(this: void, connection: object, work: () => Promise<T>): Promise<T>;
  /** Reports the rest. What comes later is not counted. */
  end(this: void): void;
}

/** Reports the counts once a minute, where there was anything. */
export function createAudit(clock: Clock, report: (counts: SignCounts) => void): Audit {
  const underWay = new WeakMap<object, number>();
  let all = 0;
  let signed = 0;
  let refused: Record<string, number> = {};
  let cancel: (() => void) | undefined;
  let hasEnded = false;

  function take(connection: object, by: 1 | -1): void {
    const own = underWay.get(connection) ?? 0;
    if (by === 1 && (own >= limits.ofOne || all >= limits.all)) {
      throw new SignerError("ERR_SIGNER_BUSY", "too many signatures are under way; try again later");
    }
    underWay.set(connection, own + by);
    all += by;
  }

  /** @param code of the error; `undefined` where a token was signed */
  function count(code?: string): void {
    // The connections were cut by then, so nobody got a reply.
    if (hasEnded) return;
    if (code === undefined) signed += 1;
    else refused[code] = (refused[code] ?? 0) + 1;
    cancel ??= clock.setTimer(tell, everyMs);
  }

  function tell(): void {
    cancel?.();
    cancel = undefined;
    if (signed === 0 && Object.keys(refused).length === 0) return;
    report({ signed, refused });
    [signed, refused] = [0, {}];
  }

  return {
    async sign(connection, work) {
      try {
        take(connection, 1);
        const result = await work().finally(() => take(connection, -1));
        count();
        return result;
      } catch (error) {
        count(codeOf(error));
        throw error;
      }
    },
    end() {
      tell();
      hasEnded = true;
    },
  };
}
