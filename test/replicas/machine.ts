import { randomFrom } from "../support/random.ts";

export const second = 1_000;
export const minute = 60 * second;
export const hour = 60 * minute;
export const day = 24 * hour;

/** When runs begin, by a right clock. */
const epoch = Date.parse("2026-11-20T12:00:00Z");

/** Numbers that are the same for the same seed. */
export interface Random {
  upTo(end: number): number;
  between(from: number, to: number): number;
  /** Short as often as long. */
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

/** The clocks of a machine. Time is given in milliseconds since the run began, in truth. */
export class Machine {
  readonly #random: Random;
  /** Both clocks go at this rate. */
  #rate: number;
  /** By which part the wall clock goes faster than the monotonic one: 50 ppm at most. */
  readonly #drift: number;
  #since = 0;
  #monotonic = 0;
  /** What the wall clock is beside the monotonic one. */
  #asideMs: number;
  /** What nobody has corrected. */
  #offMs: number;

  constructor(random: Random, offMs: number) {
    this.#random = random;
    this.#drift = random.between(-50, 50) / 1e6;
    this.#rate = 1 + random.between(-500, 500) / 1e6;
    this.#asideMs = offMs;
    this.#offMs = offMs;
  }

  monotonic(now: number): number {
    return this.#monotonic + Math.max(now - this.#since, 0) * this.#rate;
  }

  wall(now: number): number {
    const monotonic = this.monotonic(now);
    return epoch + monotonic * (1 + this.#drift) + this.#asideMs + (now < this.#since ? now - this.#since : 0);
  }

  /** How long a timer really takes: it may be early or late by some milliseconds. */
  trueMs(delayMs: number): number {
    return delayMs / this.#rate + this.#random.between(-5, 10);
  }

  /** When a token ends that gets its times here, in truth. */
  expiry(now: number, lifetimeSeconds: number): number {
    return (Math.floor(this.wall(now) / second) + lifetimeSeconds) * second - epoch;
  }

  offBy(now: number): number {
    return this.wall(now) - epoch - now;
  }

  /** Sets the wall clock, so that it is off by this. */
  set(now: number, offMs: number): void {
    this.#offMs = offMs;
    this.#asideMs += offMs - this.offBy(now);
  }

  /** Sets the wall clock forward or back by this, as NTP does every day. */
  step(byMs: number): void {
    this.#asideMs += byMs;
  }

  /** Corrects it, as NTP does: 500 ppm at most. */
  slew(now: number): void {
    this.#monotonic = this.monotonic(now);
    this.#since = Math.max(now, this.#since);
    const error = this.offBy(now) - this.#offMs;
    this.#rate = 1 - (Math.sign(error || 1) * this.#random.between(0, 500)) / 1e6;
  }

  /** The machine stands still; when it goes on, the wall clock is right, and the monotonic clock knows nothing of it. */
  suspend(now: number, forMs: number): void {
    this.#monotonic = this.monotonic(now);
    this.#since = now + forMs;
    this.#asideMs += forMs;
  }

  /** It goes on at once, and its clock is right. */
  resume(now: number): void {
    this.#monotonic = this.monotonic(now);
    this.#since = now;
    this.set(now, 0);
  }
}
