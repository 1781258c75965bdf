/**
 * The key manager, which generates, rotates and removes keys in a store.
 *
 * @module jwksd/rotation
 */

export type { Metric } from "../base/metrics.ts";
export type { KeysetSource } from "../provider/managed-keys.ts";
export type { Keysets } from "../publish/keyset-check.ts";
export { type RotationPlan, planRotation } from "./explain/plan.ts";
export { createKeyManager } from "./manager/manager.ts";
export type {
  KeyManager,
  KeyManagerOptions,
  KeyManagerEvent,
  KeyManagerHealth,
  PublicRecord,
  RotateOptions,
} from "./manager/types.ts";
export type { KeyChange } from "./rules/advance.ts";
export type { RotationPolicy, RotationPolicyOptions } from "./rules/policy.ts";
export type { AuditEvent, KeyRecord, LiveRecord, Tombstone } from "./rules/key-records.ts";
export { type KeysWithSavedSet, type SavedSetEvent, type TextStorage } from "./saved-set/keys-with-saved-set.ts";
export { type SavedSetOptions, startWithSavedSet } from "./saved-set/start-with-saved-set.ts";
