export type { Change } from "./advance.ts";
export type { Command, NewKey } from "./commands.ts";
export type { Driven, KeyManager, KeyManagerOptions, ManagedKeysets, ManagerEvent } from "./manager-types.ts";
export { createKeyManager } from "./manager.ts";
export { type RotationPolicy, type RotationPolicyOptions, rotationPolicy } from "./policy.ts";
