import type { Lease } from "../store/store.ts";
import { isPermanent } from "./permanent-lease.ts";
import { type RotationPolicy, policyNames } from "./policy.ts";

/** What a replica says in its lease of how it was started. Nothing authenticates it, and it makes no key believed. */
export interface ReplicaSettings {
  /** The ids of its wrapping keys. */
  readonly wrappingKeys: readonly string[];
  readonly policy: RotationPolicy;
  /** Whether it signs while it may. */
  readonly signs: boolean;
}

/** Whether a replica signs while it may; `undefined` where it does not say. */
export function maySign({ settings }: Lease): boolean | undefined {
  const signs: unknown = settings?.["signs"];
  return typeof signs === "boolean" ? signs : undefined;
}

/** Replicas that do not say that they have a wrapping key. A copy is read without one. */
export function withoutWrappingKey(leases: readonly Lease[], id: string): readonly Lease[] {
  return leases.filter((lease) => {
    const ids: unknown = lease.settings?.["wrappingKeys"];
    return !isPermanent(lease) && !(Array.isArray(ids) && ids.includes(id));
  });
}

/** The policy of a replica, as far as it says one. */
export function policyOfReplica({ settings }: Lease): Partial<RotationPolicy> {
  const said = (settings?.["policy"] ?? {}) as Readonly<Record<string, unknown>>;
  return Object.fromEntries(
    policyNames.flatMap((name) => (typeof said[name] === "number" ? [[name, said[name]] as const] : [])),
  );
}
