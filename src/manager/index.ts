/**
 * The key manager: makes, rotates and removes keys in a store.
 *
 * @module jwksd/rotation
 */

export type { Metric, MetricValue } from "../metrics.ts";
export type { Change } from "../rotation/advance.ts";
export type { Command, NewKey } from "../rotation/commands.ts";
export type { KeySink, KeyManager, KeyManagerOptions, ManagedKeysets, ManagerEvent } from "./types.ts";
export { createKeyManager } from "./manager.ts";
export { type RotationPolicy, type RotationPolicyOptions, rotationPolicy } from "../rotation/policy.ts";
