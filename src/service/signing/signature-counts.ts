import type { Clock } from "../../base/clock.ts";
import { SignerError, codeOf } from "../../base/errors.ts";

/** A socket's request counts for one minute. Nothing about the content of tokens is recorded. */
export interface SignCounts {
  readonly signed: number;
  /** Counts by error code. */
  readonly refused: Readonly<Record<string, number>>;
}

const reportEveryMs = 60_000;
/** Limits for concurrent signatures. */
const limits = { total: 1_024, perConnection: 64 } as const;

/** Limits and counts one socket's signatures. */
export interface Audit {
  /**
   * Signs for a connection and counts the outcome. A connection that keeps pipelining requests cannot crowd out the
   * others.
   *
   * @throws SignerError `ERR_SIGNER_BUSY`, and the errors from `work`
   */
  sign<T>(this: void, connection: object, work: () => Promise<T>): Promise<T>;
  /** Reports the remaining counts and stops counting. */
  end(this: void): void;
}

/** Creates an audit that reports its counts once a minute, unless they are all zero. */
export function createAudit(clock: Clock, report: (counts: SignCounts) => void): Audit {
  const inFlight = new WeakMap<object, number>();
  let total = 0;
  let signed = 0;
  let refused: Record<string, number> = {};
  let cancel: (() => void) | undefined;
  let hasEnded = false;

  function occupy(connection: object, by: 1 | -1): void {
    const own = inFlight.get(connection) ?? 0;
    if (by === 1 && (own >= limits.perConnection || total >= limits.total)) {
      throw new SignerError("ERR_SIGNER_BUSY", "too many signatures are in progress; try again later");
    }
    inFlight.set(connection, own + by);
    total += by;
  }

  /** @param code error code, or `undefined` if a token was signed */
  function count(code?: string): void {
    // By then, the connections have been closed, so no caller receives a reply.
    if (hasEnded) return;
    if (code === undefined) signed += 1;
    else refused[code] = (refused[code] ?? 0) + 1;
    cancel ??= clock.setTimer(flush, reportEveryMs);
  }

  function flush(): void {
    cancel?.();
    cancel = undefined;
    if (signed === 0 && Object.keys(refused).length === 0) return;
    report({ signed, refused });
    [signed, refused] = [0, {}];
  }

  return {
    async sign(connection, work) {
      try {
        occupy(connection, 1);
        const result = await work().finally(() => occupy(connection, -1));
        count();
        return result;
      } catch (error) {
        count(codeOf(error));
        throw error;
      }
    },
    end() {
      flush();
      hasEnded = true;
    },
  };
}
