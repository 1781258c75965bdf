import { StoreError } from "../errors.ts";
import { type Rule, type Rules, checkOptions, number, textThat, wholeNumber } from "../options.ts";
import { printable } from "../printable.ts";
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
const leaseRules: Rules<Lease> = { ...seenRules, name, until: number(0, latest) };

// Long after the last commit that could have deleted it, or where none ever comes.
const keptMs = 86_400_000;

/** Until when a lease that ends now or before it may be forgotten: those that joined and were never counted. */
export const forgottenAt = (now: number): number => now - keptMs;

/** When a lease ends that is given now. Rounded up: a store may rely on it longer than the replica does, never shorter. */
export function endOf(now: number, forMs: number): number {
  checkOptions({ forMs }, { forMs: duration }, "parameter");
  return Math.ceil(now + forMs);
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
export function newLease(lease: Pick<Lease, "id" | "name">, until: number): Lease {
  checkOptions(lease, { id, name }, "member of a lease");
  return { id: lease.id, name: lease.name, publishes: 0, signsWith: [], until };
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
    const { id, name, publishes, until } = row;
    return checkOptions({ id, name, publishes, signsWith, until } as Lease, leaseRules);
  } catch {
    throw new StoreError(
      "ERR_RECORDS_INVALID",
      `a lease of ${where} is damaged; delete it when no replica runs under it, or restore the store from a backup`,
    );
  }
}

/** @throws StoreError `ERR_STORE_CONFLICT` unless the live leases are those that a decision relied on */
export function checkLeases(live: readonly Lease[], seen: readonly LeaseSeen[]): void {
  const found = new Map(live.map((lease) => [lease.id, lease]));
  const same = seen.filter(({ id, publishes, signsWith }) => {
    const lease = found.get(id);
    return lease?.publishes === publishes && JSON.stringify(lease.signsWith) === JSON.stringify(signsWith);
  });
  if (same.length === seen.length && new Set(seen.map(({ id }) => id)).size === live.length) return;
  throw new StoreError("ERR_STORE_CONFLICT", "a replica has joined, left or moved on in the meantime");
}

export const leaseExists = (id: string): StoreError =>
  new StoreError("ERR_STORE_CONFLICT", `there is a lease with the id ${id}; take a new id for each lease`);

export const leaseEnded = (id: string): StoreError =>
  new StoreError("ERR_LEASE_ENDED", `the lease ${id} has ended; join again, with a new id`);
