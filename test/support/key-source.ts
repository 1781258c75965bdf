import type { ManagedKeys } from "../../src/provider/managed-keys.ts";
import type { Keyset } from "../../src/publish/keyset.ts";

/** Managed keys that do not change, but for what a test replaces. */
export function keySource(issuer: string, keyset: Keyset, replaced: Partial<ManagedKeys> = {}): ManagedKeys {
  const keysets = { keyset, encryptionKeyset: [] };
  return {
    issuer,
    keysets,
    isRotating: false,
    maxTokenLifetimeSeconds: 3600,
    permit: () => () => {},
    endOf: () => undefined,
    subscribe: (subscriber) => subscriber.update(keysets, { isRotating: false }),
    ...replaced,
  };
}
