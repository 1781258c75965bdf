import type { Clock } from "../../base/clock.ts";

/** What was asked of a socket in one minute. Never what was signed. */
export interface SignCounts {
  readonly signed: number;
  /** Counts by error code. */
  readonly refused: Readonly<Record<string, number>>;
}

const everyMs = 60_000;

/** Counts what is asked of one socket. */
export interface Audit {
  /** @param code of the error; `undefined` where a token was signed */
  count(code?: string): void;
  /** Reports the rest. What comes later is not counted. */
  end(this: void): void;
}

/** Reports the counts once a minute, where there was anything. */
export function createAudit(clock: Clock, report: (counts: SignCounts) => void): Audit {
  let signed = 0;
  let refused: Record<string, number> = {};
  let cancel: (() => void) | undefined;
  let hasEnded = false;

  function tell(): void {
    cancel?.();
    cancel = undefined;
    if (signed === 0 && Object.keys(refused).length === 0) return;
    report({ signed, refused });
    [signed, refused] = [0, {}];
  }

  return {
    count(code) {
      // The connections were cut by then, so nobody got a reply.
      if (hasEnded) return;
      if (code === undefined) signed += 1;
      else refused[code] = (refused[code] ?? 0) + 1;
      cancel ??= clock.setTimer(tell, everyMs);
    },
    end() {
      tell();
      hasEnded = true;
    },
  };
}
