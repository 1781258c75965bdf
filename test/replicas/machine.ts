import { randomFrom } from "../support/random.ts";

export const second = 1_000;
export const minute = 60 * second;
export const hour = 60 * minute;
export const day = 24 * hour;

/** Start time of all runs, according to a correct clock. */
const epoch = Date.parse("2026-11-20T12:00:00Z");

/** Random numbers, which are the same for the same seed. */
export interface Random {
  upTo(end: number): number;
  between(from: number, to: number): number;
  /** Returns a number with a logarithmic distribution. */
  log(from: number, to: number): number;
  chance(share: number): boolean;
  sign(): 1 | -1;
  of<T>(values: readonly T[]): T;
}

export function randomOf(seed: number): Random {
  const next = randomFrom(seed);
  return {
    upTo: (end) => next() * end,
    between: (from, to) => from + next() * (to - from),
    log: (from, to) => from * (to / from) ** next(),
    chance: (share) => next() < share,
    sign: () => (next() < 0.5 ? -1 : 1),
    of: (values) => values[Math.floor(next() * values.length)] as (typeof values)[number],
  };
}

/** The clocks of a machine. `now` is the true time in milliseconds since the run began. */
export class Machine {
  readonly #random: Random;
  /** Rate of both clocks. */
  #rate: number;
  /** Rate of the wall clock relative to the monotonic clock, minus 1: at most 50 ppm. */
  readonly #drift: number;
  #since = 0;
  #monotonic = 0;
  /** Offset of the wall clock from the monotonic clock. */
  #offsetMs: number;
  /** Error of the wall clock that NTP does not correct. */
  #errorMs: number;

  constructor(random: Random, errorMs: number) {
    this.#random = random;
    this.#drift = random.between(-50, 50) / 1e6;
    this.#rate = 1 + random.between(-500, 500) / 1e6;
    this.#offsetMs = errorMs;
    this.#errorMs = errorMs;
  }

  monotonic(now: number): number {
    return this.#monotonic + Math.max(now - this.#since, 0) * this.#rate;
  }

  wall(now: number): number {
    const monotonic = this.monotonic(now);
    return epoch + monotonic * (1 + this.#drift) + this.#offsetMs + (now < this.#since ? now - this.#since : 0);
  }

  /** Returns the true duration of a timer, which may be a few milliseconds early or late. */
  trueMs(delayMs: number): number {
    return delayMs / this.#rate + this.#random.between(-5, 10);
  }

  /** Returns the true time at which a token expires whose times come from this machine. */
  expiry(now: number, lifetimeSeconds: number): number {
    return (Math.floor(this.wall(now) / second) + lifetimeSeconds) * second - epoch;
  }

  errorAt(now: number): number {
    return this.wall(now) - epoch - now;
  }

  /** Sets the wall clock to this error. */
  set(now: number, errorMs: number): void {
    this.#errorMs = errorMs;
    this.#offsetMs += errorMs - this.errorAt(now);
  }

  /** Sets the wall clock forward or back, as NTP does every day. */
  step(byMs: number): void {
    this.#offsetMs += byMs;
  }

  /** Corrects the wall clock gradually, as NTP does: at most 500 ppm. */
  slew(now: number): void {
    this.#monotonic = this.monotonic(now);
    this.#since = Math.max(now, this.#since);
    const error = this.errorAt(now) - this.#errorMs;
    this.#rate = 1 - (Math.sign(error || 1) * this.#random.between(0, 500)) / 1e6;
  }

  /** Suspends the machine. When it resumes, the wall clock is correct, and the monotonic clock has not advanced. */
  suspend(now: number, forMs: number): void {
    this.#monotonic = this.monotonic(now);
    this.#since = now + forMs;
    this.#offsetMs += forMs;
  }

  /** Resumes the machine immediately, with a correct clock. */
  resume(now: number): void {
    this.#monotonic = this.monotonic(now);
    this.#since = now;
    this.set(now, 0);
  }
}
