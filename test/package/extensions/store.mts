// A store as described in docs/stores.md, with every method that a store can have.
import { createKeyManager } from "jwksd/rotation";
import type { ClosableRegister, PresenceStore, Register } from "jwksd/store";
import { defineRegisterTests } from "jwksd/testing/adapters";
import { httpStore } from "../../../examples/docs/store-own.mjs";

const present = new Map<string, string>();
const presence: PresenceStore = {
  async put(id, record, { signal } = {}) {
    signal?.throwIfAborted();
    present.set(id, record);
  },
  list: async (limit) => ({ records: new Map([...present].slice(0, limit)), count: present.size }),
  async drop(ids) {
    for (const id of ids) present.delete(id);
  },
};

export const store: ClosableRegister = {
  ...httpStore("https://store.example/keys"),
  presence,
  watch(onChange, { signal }) {
    const timer = setInterval(onChange, 1000);
    signal.addEventListener("abort", () => clearInterval(timer));
  },
  due: async (limit, after) =>
    (after === undefined ? [{ issuer: "https://op.example", due: 0, key: "1" }] : []).slice(0, limit),
  maxBytes: 1_000_000,
  async close() {},
};

export const manager = await createKeyManager({ issuer: "https://op.example", store, wrappingKeys: "" });
defineRegisterTests("ours", async () => ({ handle: async (): Promise<Register> => store, end: async () => {} }));
