import { StoreError } from "../../base/errors.ts";
import { type Rule, type Rules, checkOptions, number, object, textThat, wholeNumber } from "../../base/options.ts";
import { printable } from "../../base/printable.ts";
import type { Lease, LeaseSeen, NewLease } from "./store.ts";

const maxKids = 16;
const maxKidLength = 4_096;
const maxSettingsLength = 16_384;
const latest = 8.64e15;

const id = textThat("a string of 1 to 64 characters of A-Z a-z 0-9 . _ : -", (value) => /^[\w.:-]{1,64}$/.test(value));
const name = textThat(
  "a string of 1 to 255 printable characters",
  (value) => value.length <= 255 && printable(value) === value,
);
const kids: Rule<readonly string[]> = {
  must: `an array of at most ${maxKids} kids`,
  holds: (value): value is string[] =>
    Array.isArray(value) &&
    value.length <= maxKids &&
    value.every((kid) => typeof kid === "string" && kid !== "" && kid.length <= maxKidLength),
};
const settings: Rule<object> = {
  must: `an object of at most ${maxSettingsLength} characters as JSON`,
  holds: (value): value is object => object.holds(value) && JSON.stringify(value).length <= maxSettingsLength,
};
const revision = wholeNumber(0, Number.MAX_SAFE_INTEGER);
const duration = number(1, latest);

const seenRules: Rules<LeaseSeen> = { id, publishes: revision, signsWith: kids };
const leaseRules: Rules<Lease> = {
  ...seenRules,
  name,
  settings,
  serial: revision,
  forMs: duration,
  until: number(0, latest),
};

const keptMs = 86_400_000;

/**
 * An ended lease whose time was over at this moment may be forgotten. A replica that has not seen the end of a lease counts the lease until its
 * time is over, so forgetting the lease breaks nothing.
 */
export const forgottenAt = (now: number): number => now - keptMs;

/**
 * The time of a lease that is given now. Rounded up: others may rely on it longer than the replica does, never shorter.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function timeOf(now: number, forMs: number): Pick<Lease, "forMs" | "until"> {
  checkOptions({ forMs }, { forMs: duration }, "parameter");
  return { forMs: Math.ceil(forMs), until: Math.ceil(now + forMs) };
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
export function newLease(lease: NewLease, now: number, forMs: number): Lease {
  const joined = checkOptions(lease, { id, name, settings }, "member of a lease");
  return { ...joined, publishes: 0, signsWith: [], serial: 0, ...timeOf(now, forMs) };
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
export const checkRenewal = (lease: LeaseSeen): void => void checkOptions(lease, seenRules, "member of a lease");

/** A lease as text, for stores in databases. */
export interface LeaseRow extends Omit<Lease, "signsWith" | "settings"> {
  readonly signsWith: string;
  readonly settings: string | null;
}

/**
 * What a store has kept of a lease.
 *
 * @throws StoreError `ERR_RECORDS_INVALID`: somebody else has written the lease, so jwksd does not know which replicas there are
 */
export function readLease(row: LeaseRow, where: string): Lease {
  try {
    const signsWith: unknown = JSON.parse(row.signsWith.slice(0, maxKids * maxKidLength * 6));
    const settings: unknown = row.settings === null ? undefined : JSON.parse(row.settings.slice(0, maxSettingsLength));
    const { id, name, publishes, serial, forMs, until } = row;
    return checkOptions({ id, name, publishes, signsWith, settings, serial, forMs, until } as Lease, leaseRules);
  } catch {
    throw new StoreError(
      "ERR_RECORDS_INVALID",
      `a lease of ${where} is damaged; delete it when no replica runs under it, or restore the store from a backup`,
    );
  }
}

/** The settings of a lease as text, for stores that keep text. */
export const settingsText = ({ settings }: NewLease): string | null =>
  settings === undefined ? null : JSON.stringify(settings);

/** @throws StoreError `ERR_STORE_CONFLICT` unless these leases are those that a decision relied on */
export function checkLeases(leases: readonly Lease[], seen: readonly LeaseSeen[]): void {
  const found = new Map(leases.map((lease) => [lease.id, lease]));
  const same = seen.filter(({ id, publishes, signsWith }) => {
    const lease = found.get(id);
    return lease?.publishes === publishes && JSON.stringify(lease.signsWith) === JSON.stringify(signsWith);
  });
  if (same.length === seen.length && new Set(seen.map(({ id }) => id)).size === leases.length) return;
  throw new StoreError("ERR_STORE_CONFLICT", "a replica has joined, left or moved on in the meantime");
}

export const leaseExists = (id: string): StoreError =>
  new StoreError("ERR_STORE_CONFLICT", `there is a lease with the id ${id}; take a new id for each lease`);

export const leaseEnded = (id: string): StoreError =>
  new StoreError("ERR_LEASE_ENDED", `the lease ${id} has ended; join again, with a new id`);
