/**
 * The interface of stores, and an in-memory store.
 *
 * @module jwksd/store
 */

export { memoryStore } from "./memory.ts";
export type {
  ClosableRegister,
  PresenceStore,
  ReadResult,
  ReadOptions,
  Register,
  CallOptions,
  WriteOptions,
} from "./register.ts";
