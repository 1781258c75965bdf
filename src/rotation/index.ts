export type { Change } from "./advance.ts";
export type { Command, NewKey } from "./commands.ts";
export {
  type Driven,
  type KeyManager,
  type KeyManagerOptions,
  type ManagedKeysets,
  type ManagerEvent,
  createKeyManager,
} from "./manager.ts";
export { type RotationPolicy, type RotationPolicyOptions, rotationPolicy } from "./policy.ts";
