import {
  type KeyRecord,
  type LiveRecord,
  activeKey,
  announcedKey,
  isDecommissioned,
  isLive,
  liveRecords,
} from "../../src/rotation/rules/key-records.ts";
import { type RotationPolicy, announceForMs, rotateEveryMs } from "../../src/rotation/rules/policy.ts";
import { waitOf } from "../../src/rotation/rules/waits.ts";
import { minute, second } from "./machine.ts";

/** The externally visible state at one moment. */
export interface Observation {
  readonly records: readonly KeyRecord[];
  /** Time at which each healthy process last signed. */
  readonly signed: ReadonlyMap<string, number>;
}

/**
 * The liveness invariant, in true time: once a process is healthy, each step is taken soon after its waiting period, and that process signs, no
 * matter what happens to the others.
 */
export class Deadlines {
  #policy: RotationPolicy;
  /** The longest durations of all policies so far. */
  #longest: RotationPolicy;
  /** Time at which each key was first seen in its current state. */
  readonly #since = new Map<string, number>();
  #healedAt = Infinity;

  constructor(policy: RotationPolicy) {
    this.#policy = policy;
    this.#longest = policy;
  }

  follow(policy: RotationPolicy): void {
    this.#policy = policy;
    const longest = { ...policy };
    for (const name of Object.keys(policy) as (keyof RotationPolicy)[]) {
      Object.assign(longest, { [name]: Math.max(policy[name], this.#longest[name]) });
    }
    this.#longest = longest;
  }

  /** Longest time for which a process may use what it has read. */
  get longestStaleMs(): number {
    return this.#longest.maxStaleSeconds * second;
  }

  /** Longest delay of a step: a process reads at least this often, and a call may hang or be retried. */
  get #periodMs(): number {
    return (this.#longest.maxStaleSeconds * second) / 6 + 5 * minute;
  }

  get roundMs(): number {
    return rotateEveryMs(this.#longest) + 2 * this.#periodMs;
  }

  observe(record: KeyRecord, now: number): void {
    if (!isLive(record)) return;
    const name = nameOf(record);
    if (!this.#since.has(name)) this.#since.set(name, now);
  }

  healed(now: number): void {
    this.#healedAt = now;
  }

  /** Describes the steps and signatures that are overdue. */
  missed({ records, signed }: Observation, now: number): string[] {
    const isLate = (since: number, ms: number): boolean =>
      now > Math.max(since, this.#healedAt) + ms * 1.001 + this.#periodMs;
    const keys = liveRecords(records).filter(
      (record) => record.use === "sig" && isLate(this.#since.get(nameOf(record)) ?? now, this.#leftMs(record, records)),
    );
    const silent = isDecommissioned(records) ? [] : [...signed].filter(([, at]) => isLate(at, 0));
    return [
      ...keys.map(({ kid, state }) => `invariant 3, after ${now / second} s: ${kid} is still ${state}`),
      ...silent.map(([name]) => `invariant 3, after ${now / second} s: ${name} does not sign`),
    ];
  }

  /** Returns how long a key keeps its state if there are no faults. */
  #leftMs(record: LiveRecord, records: readonly KeyRecord[]): number {
    if (record.state !== "active") {
      const { since, forMs = 0 } = waitOf(record, this.#policy) ?? {};
      return since === undefined ? 0 : forMs;
    }
    const hasSuccessor = announcedKey(records, "sig") !== undefined || activeKey(records, "sig") !== record;
    if (hasSuccessor) return Infinity;
    // Its times may come from a wrong clock.
    const isFromHealthyTime = (this.#since.get(nameOf(record)) ?? 0) > this.#healedAt;
    return rotateEveryMs(this.#longest) - (isFromHealthyTime ? announceForMs(this.#policy) : 0);
  }
}

const nameOf = ({ kid, state, activations, publishedAt, replacedAt }: LiveRecord): string =>
  `${kid} ${state} ${activations} ${state === "announced" ? publishedAt : replacedAt}`;
