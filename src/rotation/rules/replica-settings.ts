import type { Lease } from "../store/store.ts";
import { type RotationPolicy, policyNames } from "./policy.ts";

/** What a replica says in its lease of how it was started. Nothing authenticates it, and it makes no key believed. */
export interface ReplicaSettings {
  /** The ids of its wrapping keys. */
  readonly wrappingKeys: readonly string[];
  readonly policy: RotationPolicy;
}

/** Whether a replica says that it has a wrapping key. A replica that does not say counts as one without the key. */
export function hasWrappingKey({ settings }: Lease, id: string): boolean {
  const ids: unknown = settings?.["wrappingKeys"];
  return Array.isArray(ids) && ids.includes(id);
}

/** The policy of a replica, as far as it says one. */
export function policyOfReplica({ settings }: Lease): Partial<RotationPolicy> {
  const said = (settings?.["policy"] ?? {}) as Readonly<Record<string, unknown>>;
  return Object.fromEntries(
    policyNames.flatMap((name) => (typeof said[name] === "number" ? [[name, said[name]] as const] : [])),
  );
}
