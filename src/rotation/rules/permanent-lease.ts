import { textHash } from "../../keys/crypto/text-hash.ts";
import type { Lease, Snapshot } from "../store/store.ts";

/**
 * How long a permanent lease lasts, in milliseconds: a hundred years. A copy of the documents has such a lease, because it is served without
 * the process that writes it. An operator can end the lease.
 */
export const permanentMs = 100 * 365.25 * 86_400_000;

export function isPermanent({ forMs }: Pick<Lease, "forMs">): boolean {
  return forMs >= permanentMs;
}

/** The lease of a copy, and where there is none, the id of the next one. One that was ended is never renewed. */
export async function leaseOfCopy(
  name: string,
  { leases, ended }: Pick<Snapshot, "leases" | "ended">,
): Promise<{ readonly lease: Lease | undefined; readonly nextId: string }> {
  const beginning = `copy:${await textHash(name)}:`;
  const lease = leases.find(({ id }) => id.startsWith(beginning));
  const used = new Set([...leases.map(({ id }) => id), ...ended]);
  let number = 1;
  while (used.has(beginning + number)) number += 1;
  return { lease, nextId: beginning + number };
}
