import { type RotationPolicy, announceForMs, rotateEveryMs } from "../../src/rotation/rules/policy.ts";
import {
  type KeyRecord,
  type LiveRecord,
  activeKey,
  announcedKey,
  isLive,
  liveRecords,
} from "../../src/rotation/rules/records.ts";
import { waitOf } from "../../src/rotation/rules/waits.ts";
import { minute, second } from "./machine.ts";

/** What can be seen from outside at one moment. */
export interface Seen {
  readonly records: readonly KeyRecord[];
  /** When each process that is well has last signed. */
  readonly signed: ReadonlyMap<string, number>;
}

/**
 * The other half of the laws, in true time: what is due is done. Once a process is well, each step is taken soon after its wait, and that process
 * signs, whatever becomes of the others.
 */
export class Deadlines {
  #policy: RotationPolicy;
  /** The longest of all policies until now. */
  #longest: RotationPolicy;
  /** When each key was first seen as it is. */
  readonly #since = new Map<string, number>();
  #healedAt = Infinity;

  constructor(policy: RotationPolicy) {
    this.#policy = policy;
    this.#longest = policy;
  }

  goBy(policy: RotationPolicy): void {
    this.#policy = policy;
    const longest = { ...policy };
    for (const name of Object.keys(policy) as (keyof RotationPolicy)[]) {
      Object.assign(longest, { [name]: Math.max(policy[name], this.#longest[name]) });
    }
    this.#longest = longest;
  }

  /** For how long a process may use what it has read. */
  get longestStaleMs(): number {
    return this.#longest.maxStaleSeconds * second;
  }

  /** How late a step may be: a process looks at least so often, and a call may hang, or be tried again. */
  get #periodMs(): number {
    return (this.#longest.maxStaleSeconds * second) / 6 + 5 * minute;
  }

  get roundMs(): number {
    return rotateEveryMs(this.#longest) + 2 * this.#periodMs;
  }

  note(record: KeyRecord, now: number): void {
    if (!isLive(record)) return;
    const name = nameOf(record);
    if (!this.#since.has(name)) this.#since.set(name, now);
  }

  healed(now: number): void {
    this.#healedAt = now;
  }

  /** What should have been done by now, and was not. */
  missed({ records, signed }: Seen, now: number): string[] {
    const isLate = (since: number, ms: number): boolean =>
      now > Math.max(since, this.#healedAt) + ms * 1.001 + this.#periodMs;
    const keys = liveRecords(records).filter(
      (record) => record.use === "sig" && isLate(this.#since.get(nameOf(record)) ?? now, this.#leftMs(record, records)),
    );
    const silent = [...signed].filter(([, at]) => isLate(at, 0));
    return [
      ...keys.map(({ kid, state }) => `promise 3, after ${now / second} s: ${kid} is still ${state}`),
      ...silent.map(([name]) => `promise 3, after ${now / second} s: ${name} does not sign`),
    ];
  }

  /** How long a key stays as it is, once all goes well. */
  #leftMs(record: LiveRecord, records: readonly KeyRecord[]): number {
    if (record.state !== "active") {
      const { since, forMs = 0 } = waitOf(record, this.#policy) ?? {};
      return since === undefined ? 0 : forMs;
    }
    const isOver = announcedKey(records, "sig") !== undefined || activeKey(records, "sig") !== record;
    if (isOver) return Infinity;
    // Its times may be those of a clock that was wrong.
    const isOfHealthyTimes = (this.#since.get(nameOf(record)) ?? 0) > this.#healedAt;
    return rotateEveryMs(this.#longest) - (isOfHealthyTimes ? announceForMs(this.#policy) : 0);
  }
}

const nameOf = ({ kid, state, publishedAt, replacedAt }: LiveRecord): string =>
  `${kid} ${state} ${state === "announced" ? publishedAt : replacedAt}`;
