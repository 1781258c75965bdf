/**
 * The key manager, which generates, rotates and removes keys in a store.
 *
 * @module jwksd/rotation
 */

export type { Metric } from "../../base/metrics.ts";
export type { Change } from "../rules/advance.ts";
export type { KeyEvent, KeyRecord, LiveRecord, Tombstone } from "../rules/records.ts";
export type { Keysets } from "../../publish/keyset.ts";
export type { ManagedKeys } from "../../provider/managed-keys.ts";
export type {
  KeyManager,
  KeyManagerOptions,
  KnownError,
  ManagerEvent,
  ManagerHealth,
  PublicRecord,
  RotateOptions,
} from "./types.ts";
export { createKeyManager } from "./manager.ts";
export type { RotationPolicy, RotationPolicyOptions } from "../rules/policy.ts";
export { type KeysWithSavedSet, type SavedSetEvent, type TextStorage } from "../saved-set/keys.ts";
export { type SavedSetOptions, startWithSavedSet } from "../saved-set/start.ts";
