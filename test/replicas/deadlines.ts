import {
  type RotationPolicy,
  type RotationPolicyOptions,
  announceForMs,
  rotateEveryMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import { activeKey, announcedKey, liveRecords } from "../../src/rotation/rules/records.ts";
import { waitOf } from "../../src/rotation/rules/waits.ts";
import type { KeyRecord, Lease } from "../../src/rotation/store/store.ts";
import { minute, second } from "./machine.ts";

/** What can be seen from outside at one moment. */
export interface Seen {
  readonly records: readonly KeyRecord[];
  readonly leases: readonly Lease[];
  /** When each replica has last signed. */
  readonly signed: ReadonlyMap<string, number>;
}

/**
 * The other half of the laws, in true time: what is due is done. Once all has been mended, each step is taken within a period after its wait,
 * each replica signs, and no lease of a dead one stands.
 */
export class Deadlines {
  readonly #policies: readonly RotationPolicy[];
  /** How late a step may be: a lease of a dead replica has to end first. */
  readonly #periodMs: number;
  /** When each key was first seen as it is. */
  readonly #since = new Map<string, number>();
  #healedAt = Infinity;

  constructor(policies: readonly RotationPolicyOptions[]) {
    this.#policies = policies.map((policy) => rotationPolicy(policy));
    const longestLeaseMs = Math.max(...this.#policies.map(({ leaseSeconds }) => leaseSeconds * second));
    this.#periodMs = 3 * longestLeaseMs + 10 * minute;
  }

  get roundMs(): number {
    return Math.min(...this.#policies.map(rotateEveryMs)) + 2 * this.#periodMs;
  }

  note(record: KeyRecord, now: number): void {
    const name = nameOf(record);
    if (!this.#since.has(name)) this.#since.set(name, now);
  }

  healed(now: number): void {
    this.#healedAt = now;
  }

  /** Something has come of what was broken before. */
  disturbed(now: number): void {
    if (now > this.#healedAt) this.#healedAt = now;
  }

  /** What should have been done by now, and was not. */
  missed({ records, leases, signed }: Seen, now: number): string[] {
    const isLate = (since: number, ms: number): boolean =>
      now > Math.max(since, this.#healedAt) + ms * 1.001 + this.#periodMs;
    const keys = liveRecords(records).filter(
      (record) => record.use === "sig" && isLate(this.#since.get(nameOf(record)) ?? now, this.#leftMs(record, records)),
    );
    const silent = [...signed].filter(([, at]) => isLate(at, 0));
    return [
      ...keys.map(({ kid, state }) => `promise 3, after ${now / second} s: ${kid} is still ${state}`),
      ...silent.map(([name]) => `promise 3, after ${now / second} s: ${name} does not sign`),
      ...(leases.length > signed.size && isLate(0, 0)
        ? [`promise 3, after ${now / second} s: ${leases.length} leases stand`]
        : []),
    ];
  }

  /** How long a key stays as it is, once all goes well. */
  #leftMs(record: KeyRecord, records: readonly KeyRecord[]): number {
    if (record.state === "active") {
      const isOver = announcedKey(records, "sig") !== undefined || activeKey(records, "sig") !== record;
      // Its times may be those of a clock that was wrong.
      return isOver ? Infinity : Math.min(...this.#policies.map((policy) => this.#activeMs(record, policy)));
    }
    const waits = this.#policies.map((policy) => waitOf(record, policy));
    return Math.min(...waits.map((wait) => (wait?.since === undefined ? 0 : wait.forMs)));
  }

  #activeMs(record: KeyRecord, policy: RotationPolicy): number {
    const isOfHealthyTimes = (this.#since.get(nameOf(record)) ?? 0) > this.#healedAt;
    return rotateEveryMs(policy) - (isOfHealthyTimes ? announceForMs(policy) : 0);
  }
}

const nameOf = ({ kid, state, publishedAt, unusedAt }: KeyRecord): string =>
  `${kid} ${state} ${state === "announced" ? publishedAt : unusedAt}`;
