import { withDeadline } from "../async.ts";
import { FetchError, type JwksdError } from "../errors.ts";
import { createBudget } from "./budget.ts";
import type { FetchOptions } from "./fetch-json.ts";
import type { KeySetEvent } from "./options.ts";
import type { Loaded } from "./source.ts";

export interface FlightOptions extends Pick<FetchOptions, "clock" | "timeoutMs" | "signal"> {
  readonly load: (bypassCaches: boolean) => Promise<Loaded>;
  /** Stores what was loaded. */
  readonly take: (loaded: Loaded, bypassCaches: boolean) => void;
  readonly emit: (event: KeySetEvent) => void;
}

/** One request for the set, with that for the discovery document where it is due. */
export interface Flight {
  readonly number: number;
  readonly bypassCaches: boolean;
  /** When it must have landed, by its own timeouts. */
  readonly dueMs: number;
  readonly landed: Promise<void>;
}

/** For all that a request does beside waiting. */
const slackMs = 1_000;

/** One request at a time, for all callers, paced after failures. */
export function createFlights({ clock, timeoutMs, signal, load, take, emit }: FlightOptions) {
  let flight: Flight | undefined;
  let begun = 0;
  let landedLast = 0;
  /** Number of the last one that passed all caches. */
  let bypassedLast = 0;
  let lastError: FetchError | undefined;
  /** Paces requests after failures: one at once, then as every budget. */
  const failures = createBudget(1);

  /** The flight under way. In workerd it ends, without a word, with the request that began it; then it is overdue one day. */
  function current(): Flight | undefined {
    if (flight !== undefined && clock.now() >= flight.dueMs) flight = undefined;
    return flight;
  }

  /** The flight under way, or else a new one. */
  function join(bypassCaches: boolean): Flight {
    const joined = current();
    if (joined !== undefined) return joined;
    begun += 1;
    const landed = request(bypassCaches, begun).then(
      () => {
        failures.reset();
        lastError = undefined;
      },
      (thrown: unknown) => {
        const now = clock.now();
        failures.spend(now, thrown instanceof FetchError ? thrown.retryAfterSeconds * 1000 : 0);
        const error = withPause(thrown, failures.waitMs(now));
        if (error instanceof FetchError) lastError = error;
        emit({ type: "failed", error: error as JwksdError });
        throw error;
      },
    );
    const mine = {
      number: begun,
      bypassCaches,
      dueMs: clock.now() + 2 * timeoutMs + slackMs,
      landed: landed.finally(() => {
        if (flight === mine) flight = undefined;
      }),
    };
    // Callers in the background do not look.
    mine.landed.catch(() => {});
    flight = mine;
    return mine;
  }

  async function request(bypassCaches: boolean, number: number): Promise<void> {
    const loaded = await load(bypassCaches);
    // It was overdue, and another took its place.
    if (number < landedLast) return;
    landedLast = number;
    if (bypassCaches) bypassedLast = number;
    take(loaded, bypassCaches);
  }

  /** Waits for a flight by a timer of the caller's own, because those of another request may have ended with it. */
  async function landing({ landed, dueMs }: Flight, deadlineMs: number = dueMs): Promise<void> {
    const timeoutMs = Math.max(deadlineMs - clock.now(), 0);
    await withDeadline(() => landed, { clock, timeoutMs, expired: late });
    signal.throwIfAborted();
  }

  /** Who began a flight leaves, and it may end with them. */
  function giveUp(left: Flight): void {
    if (flight !== left) return;
    flight = undefined;
    failures.spend(clock.now());
  }

  return {
    current,
    join,
    landing,
    giveUp,
    /** How many have begun. */
    begun: () => begun,
    /** Whether one that was not among the first so many went past all caches, and has landed. */
    bypassedSince: (count: number) => bypassedLast > count,
    /** How long the next has to wait because of failures. */
    waitMs: (nowMs: number) => failures.waitMs(nowMs),
    /** Why the last one failed, for a minute. */
    lastError: () => (failures.isWhole(clock.now()) ? undefined : lastError),
  };
}

const late = (): FetchError =>
  new FetchError("ERR_FETCH_TIMEOUT", "the keys were asked for, and nothing came of it in time");

/** The error with the pause that its caller will meet, if that is longer than the error says. */
export function withPause(error: unknown, pauseMs: number): unknown {
  const retryAfterSeconds = Math.ceil(pauseMs / 1000);
  if (!(error instanceof FetchError && error.retryable && error.retryAfterSeconds < retryAfterSeconds)) return error;
  return new FetchError(error.code, error.message, { cause: error.cause, retryAfterSeconds });
}
