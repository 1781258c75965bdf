/**
 * The interface of stores, and a store in memory.
 *
 * @module jwksd/store
 */

export { memoryStore } from "./memory.ts";
export type {
  ClosableRegister,
  Presence,
  ReadResult,
  ReadOptions,
  Register,
  StoreCall,
  WriteOptions,
} from "./register.ts";
