export { memoryStore } from "./memory.ts";
export type { KeyEvent, KeyRecord, KeyState, KeyStore, KeyUse, PrivateHalf, Snapshot, StoredEvent } from "./store.ts";
