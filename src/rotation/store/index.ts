/**
 * The interface of stores, and a store in memory.
 *
 * @module jwksd/store
 */

export { memoryStore } from "./memory.ts";
export type { OpenRegister, Presence, Reading, ReadOptions, Register, StoreCall, WriteOptions } from "./register.ts";
