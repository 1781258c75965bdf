import { cachedForSeconds } from "../../src/rotation/rules/policy.ts";

/** What a replica that calls itself ready serves at one moment. */
export interface Served {
  readonly by: string;
  readonly kids: ReadonlySet<string>;
  readonly isShort: boolean;
}

export interface OracleOptions {
  /** For how much longer than they were told caches keep a copy. */
  readonly slackMs: number;
  /** For how long verifiers take a token after its `exp`. */
  readonly skewMs: number;
}

interface Copy {
  readonly until: number;
  readonly from: string;
}

const none: Copy = { until: 0, from: "of nobody" };
const inSeconds = (ms: number): string => `${(ms / 1000).toFixed(3)} s`;

/** In true time, which only the simulation knows: each copy that was served, and each token, until nobody can use it any more. */
export class Oracle {
  readonly violations: string[] = [];
  /** The copy without this key that a verifier may use for longest. */
  readonly #unknown = new Map<string, Copy>();
  /** Until when a token of this key may be valid. */
  readonly #aliveUntil = new Map<string, number>();
  /** Keys that operators let sign at once: until when nobody has to know them. */
  readonly #exemptUntil = new Map<string, number>();
  readonly #known = new Set<string>();
  readonly #ended = new Set<string>();
  /** Revoked keys: when the last process that could not read has ended. */
  readonly #goneBy = new Map<string, number>();
  readonly #options: OracleOptions;
  #any: Copy = none;
  tokens = 0;

  constructor(options: OracleOptions) {
    this.#options = options;
  }

  /** A key is in the store, and so may be published from now on. */
  made(kid: string): void {
    if (!this.#known.has(kid)) this.#unknown.set(kid, this.#any);
    this.#known.add(kid);
  }

  /** An operator has let a key sign before it was published everywhere. */
  exempt(kid: string, until: number): void {
    this.#known.add(kid);
    this.#exemptUntil.set(kid, until);
    this.#unknown.set(kid, none);
  }

  /** A key was removed by the rules. */
  removed(kid: string, now: number): void {
    if (this.#ended.has(kid)) return;
    this.#ended.add(kid);
    this.#unknown.delete(kid);
    const left = (this.#aliveUntil.get(kid) ?? 0) - now;
    if (left > 0) this.#violated(now, 2, `${kid} is removed, and a token of it lives for ${inSeconds(left)} more`);
  }

  /** An operator has ended a key, whatever that breaks. Nobody is ready with it, or signs with it, after `goneBy`. */
  revoked(kid: string, goneBy: number): void {
    if (!this.#goneBy.has(kid)) this.#goneBy.set(kid, goneBy);
    this.#ended.add(kid);
    this.#unknown.delete(kid);
    this.#aliveUntil.delete(kid);
    this.#exemptUntil.set(kid, Infinity);
  }

  served({ by, kids, isShort }: Served, now: number): void {
    const life = (isShort ? cachedForSeconds.rotation : cachedForSeconds.long) * 1000 + this.#options.slackMs;
    const copy = { until: now + life, from: `that ${by} has served after ${inSeconds(now)}` };
    if (copy.until > this.#any.until) this.#any = copy;
    for (const [kid, goneBy] of this.#goneBy) {
      if (now > goneBy && kids.has(kid))
        this.#violated(now, 4, `${by} is ready and publishes ${kid}, which was revoked`);
    }
    for (const [kid, { until }] of this.#unknown) {
      if (!kids.has(kid) && until < copy.until && !this.#isExempt(kid, now)) this.#unknown.set(kid, copy);
    }
    for (const [kid, until] of this.#aliveUntil) {
      if (until <= now) this.#aliveUntil.delete(kid);
      else if (!kids.has(kid) && !this.#isExempt(kid, now)) {
        this.#violated(
          now,
          1,
          `${by} is ready and does not publish ${kid}, whose tokens live for ${inSeconds(until - now)} more`,
        );
      }
    }
  }

  /** @param expiresAt its `exp`, in true time */
  signed(kid: string, by: string, now: number, expiresAt: number): void {
    this.tokens += 1;
    if (now > (this.#goneBy.get(kid) ?? Infinity)) this.#violated(now, 4, `${by} signs with ${kid}, which was revoked`);
    this.#aliveUntil.set(kid, Math.max(this.#aliveUntil.get(kid) ?? 0, expiresAt + this.#options.skewMs));
    if (this.#isExempt(kid, now)) return;
    const { until, from } = this.#unknown.get(kid) ?? none;
    if (until > now)
      this.#violated(
        now,
        1,
        `${by} signs with ${kid}, and a copy without it, ${from}, lives for ${inSeconds(until - now)} more`,
      );
    if (this.#ended.has(kid)) this.#violated(now, 2, `${by} signs with ${kid}, which is removed`);
  }

  #isExempt(kid: string, now: number): boolean {
    return now < (this.#exemptUntil.get(kid) ?? -Infinity);
  }

  #violated(now: number, promise: 1 | 2 | 4, what: string): void {
    if (this.violations.length < 5) this.violations.push(`promise ${promise}, after ${inSeconds(now)}: ${what}`);
  }
}
