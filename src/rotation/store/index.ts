/**
 * The port of stores, and a store in memory.
 *
 * @module jwksd/store
 */

export { type MemoryStoreOptions, memoryStore } from "./memory.ts";
export type {
  CommitOptions,
  Committed,
  KeyEvent,
  KeyRecord,
  KeyState,
  KeyStore,
  KeyUse,
  Lease,
  LeaseSeen,
  NewLease,
  RenewOptions,
  PrivateHalf,
  Snapshot,
  StoreCall,
  StoredEvent,
} from "./store.ts";
