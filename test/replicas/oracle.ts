import { cachedForSeconds } from "../../src/rotation/rules/policy.ts";

/** The key set that a ready replica serves at one moment. */
export interface Served {
  readonly by: string;
  readonly kids: ReadonlySet<string>;
  readonly isShort: boolean;
}

export interface OracleOptions {
  /** Time for which caches keep a set longer than they should. */
  readonly slackMs: number;
  /** Time for which verifiers accept a token after its `exp`. */
  readonly skewMs: number;
}

interface CachedSet {
  readonly until: number;
  readonly from: string;
}

const none: CachedSet = { until: 0, from: "served by no process" };
const inSeconds = (ms: number): string => `${(ms / 1000).toFixed(3)} s`;

/**
 * Checks the invariants in true time, which only the simulation knows, for each served set and each token until it has
 * expired.
 */
export class Oracle {
  readonly violations: string[] = [];
  /** Cached set without this key that a verifier may use for the longest time. */
  readonly #unknown = new Map<string, CachedSet>();
  /** Time until which a token signed with this key may be valid. */
  readonly #aliveUntil = new Map<string, number>();
  /** Keys that operators made active immediately, with the time until which verifiers need not have them. */
  readonly #exemptUntil = new Map<string, number>();
  readonly #known = new Set<string>();
  readonly #ended = new Set<string>();
  /** Revoked keys, with the time at which the last process that could not read is stale. */
  readonly #goneBy = new Map<string, number>();
  readonly #options: OracleOptions;
  #any: CachedSet = none;
  #silentFrom = Infinity;
  tokens = 0;

  constructor(options: OracleOptions) {
    this.#options = options;
  }

  /** Records that a key is in the store, so that it may be published from now on. */
  added(kid: string): void {
    if (!this.#known.has(kid)) this.#unknown.set(kid, this.#any);
    this.#known.add(kid);
  }

  /** Records that an operator activated a key before it was published everywhere. */
  exempt(kid: string, until: number): void {
    this.#known.add(kid);
    this.#exemptUntil.set(kid, until);
    this.#unknown.set(kid, none);
  }

  /**
   * Records when the last process that has not read that the issuer was decommissioned stops signing; `undefined` if it
   * was not decommissioned.
   */
  decommissioned(silentFrom: number | undefined): void {
    this.#silentFrom = silentFrom === undefined ? Infinity : Math.min(this.#silentFrom, silentFrom);
  }

  /** Records that a key was removed by the rules. */
  removed(kid: string, now: number): void {
    if (this.#ended.has(kid)) return;
    this.#ended.add(kid);
    this.#unknown.delete(kid);
    const left = (this.#aliveUntil.get(kid) ?? 0) - now;
    if (left > 0)
      this.#violated(now, 2, `${kid} is removed, but one of its tokens is valid for ${inSeconds(left)} more`);
  }

  /**
   * Records that an operator revoked a key. After `goneBy`, no ready process publishes it and no process signs with it.
   */
  revoked(kid: string, goneBy: number): void {
    if (!this.#goneBy.has(kid)) this.#goneBy.set(kid, goneBy);
    this.#ended.add(kid);
    this.#unknown.delete(kid);
    this.#aliveUntil.delete(kid);
    this.#exemptUntil.set(kid, Infinity);
  }

  served({ by, kids, isShort }: Served, now: number): void {
    const lifetimeMs = (isShort ? cachedForSeconds.rotation : cachedForSeconds.long) * 1000 + this.#options.slackMs;
    const cached = { until: now + lifetimeMs, from: `served by ${by} after ${inSeconds(now)}` };
    if (cached.until > this.#any.until) this.#any = cached;
    for (const [kid, goneBy] of this.#goneBy) {
      if (now > goneBy && kids.has(kid)) this.#violated(now, 4, `${by} is ready and publishes the revoked key ${kid}`);
    }
    for (const [kid, { until }] of this.#unknown) {
      if (!kids.has(kid) && until < cached.until && !this.#isExempt(kid, now)) this.#unknown.set(kid, cached);
    }
    for (const [kid, until] of this.#aliveUntil) {
      if (until <= now) this.#aliveUntil.delete(kid);
      else if (!kids.has(kid) && !this.#isExempt(kid, now)) {
        this.#violated(
          now,
          1,
          `${by} is ready and does not publish ${kid}, whose tokens are valid for ${inSeconds(until - now)} more`,
        );
      }
    }
  }

  /** Records a token. @param expiresAt its `exp`, in true time */
  signed(kid: string, by: string, now: number, expiresAt: number): void {
    this.tokens += 1;
    if (now > this.#silentFrom)
      this.#violated(now, 4, `${by} signs with ${kid} although the issuer has been decommissioned`);
    if (now > (this.#goneBy.get(kid) ?? Infinity)) this.#violated(now, 4, `${by} signs with the revoked key ${kid}`);
    this.#aliveUntil.set(kid, Math.max(this.#aliveUntil.get(kid) ?? 0, expiresAt + this.#options.skewMs));
    if (this.#isExempt(kid, now)) return;
    const { until, from } = this.#unknown.get(kid) ?? none;
    if (until > now)
      this.#violated(
        now,
        1,
        `${by} signs with ${kid}, but a set without it, ${from}, stays in caches for ${inSeconds(until - now)} more`,
      );
    if (this.#ended.has(kid)) this.#violated(now, 2, `${by} signs with the removed key ${kid}`);
  }

  #isExempt(kid: string, now: number): boolean {
    return now < (this.#exemptUntil.get(kid) ?? -Infinity);
  }

  #violated(now: number, invariant: 1 | 2 | 4, problem: string): void {
    if (this.violations.length < 5) this.violations.push(`invariant ${invariant}, after ${inSeconds(now)}: ${problem}`);
  }
}
