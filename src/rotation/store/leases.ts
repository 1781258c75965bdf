import { StoreError } from "../../base/errors.ts";
import { type Rule, type Rules, checkOptions, number, textThat, wholeNumber } from "../../base/options.ts";
import { printable } from "../../base/printable.ts";
import type { Lease, LeaseSeen } from "./store.ts";

const maxKids = 16;
const maxKidLength = 4_096;
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
const revision = wholeNumber(0, Number.MAX_SAFE_INTEGER);
const duration = number(1, latest);

const seenRules: Rules<LeaseSeen> = { id, publishes: revision, signsWith: kids };
const leaseRules: Rules<Lease> = { ...seenRules, name, serial: revision, forMs: duration, until: number(0, latest) };

const keptMs = 86_400_000;

/**
 * Leases that were ended and whose time was over by then may be forgotten. Whoever has not seen that one was ended counts it as long as it
 * lasts, so it is safe to forget them at any time.
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
export function newLease(lease: Pick<Lease, "id" | "name">, now: number, forMs: number): Lease {
  checkOptions(lease, { id, name }, "member of a lease");
  return { id: lease.id, name: lease.name, publishes: 0, signsWith: [], serial: 0, ...timeOf(now, forMs) };
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
export const checkRenewal = (lease: LeaseSeen): void => void checkOptions(lease, seenRules, "member of a lease");

/**
 * What a store has kept of a lease. Its `signsWith` is text, as every store keeps it.
 *
 * @throws StoreError `ERR_RECORDS_INVALID`: somebody else has written it; which replicas there are is not known then
 */
export function readLease(row: Omit<Lease, "signsWith"> & { readonly signsWith: string }, where: string): Lease {
  try {
    const signsWith: unknown = JSON.parse(row.signsWith.slice(0, maxKids * maxKidLength * 6));
    const { id, name, publishes, serial, forMs, until } = row;
    return checkOptions({ id, name, publishes, signsWith, serial, forMs, until } as Lease, leaseRules);
  } catch {
    throw new StoreError(
      "ERR_RECORDS_INVALID",
      `a lease of ${where} is damaged; delete it when no replica runs under it, or restore the store from a backup`,
    );
  }
}

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
