/**
 * The interface of stores, and a store in memory.
 *
 * @module jwksd/store
 */

export { type MemoryStoreOptions, memoryStore } from "./memory.ts";
export type {
  DueIssuer,
  OpenRegister,
  Presence,
  PresenceList,
  Reading,
  ReadOptions,
  Register,
  StoreCall,
  WriteOptions,
} from "./register.ts";
