/**
 * The key manager: makes, rotates and removes keys in a store.
 *
 * @module jwksd/rotation
 */

export type { Metric, MetricValue } from "../../base/metrics.ts";
export type { Change } from "../rules/advance.ts";
export type { Command, NewKey } from "../rules/commands.ts";
export type { KnownError, ManagerHealth, StoreHealth } from "./health.ts";
export type { KeySink, KeyManager, KeyManagerOptions, ManagedKeysets, ManagerEvent } from "./types.ts";
export { createKeyManager } from "./manager.ts";
export { type RotationPolicy, type RotationPolicyOptions, rotationPolicy } from "../rules/policy.ts";
