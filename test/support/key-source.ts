import type { KeysetSource } from "../../src/provider/managed-keys.ts";
import type { Keyset } from "../../src/publish/keyset-check.ts";

/** Creates managed keys that do not change, except for the members that a test replaces. */
export function keySource(issuer: string, keyset: Keyset, replaced: Partial<KeysetSource> = {}): KeysetSource {
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
