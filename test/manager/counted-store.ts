import { StoreError } from "../../src/base/errors.ts";
import type { PresenceStore, Register, CallOptions } from "../../src/rotation/store/register.ts";

/** `checkIn`: a confirmed read, or a call for presence records. */
export type Operation = "read" | "checkIn" | "write";

/** A real store that counts its calls and can fail in every way. */
export interface CountedStore extends Register {
  /** The register behind the faults of this connection. */
  readonly register: Register;
  /** Whether every call fails, and watchers do not learn about commits. */
  isGone: boolean;
  /** Whether only reads succeed, as on a full disk. */
  isFull: boolean;
  /** Whether this process is allowed to read but not to write. */
  isReadOnly: boolean;
  /** Whether calls are never answered. */
  hangs: boolean;
  /** Whether this connection is to a replaced primary, which still answers plain reads but nothing else. */
  isOld: boolean;
  /** Runs instead of each call, which it can pass on, delay or replace. */
  hook: ((operation: Operation, go: () => Promise<unknown>) => Promise<unknown>) | undefined;
  readonly counts: Readonly<Record<Operation, number>>;
  /** The number of calls over all connections. */
  readonly calls: number;
  /** Resolves when a call hangs. */
  hung(): Promise<void>;
  /** Makes an operation count as a hanging call until it ends, so that the world does not wait for it. */
  hanging<T>(work: Promise<T>): Promise<T>;
  /** Returns another connection to the same store, with its own faults. */
  connection(): CountedStore;
}

export function countedStore(register: Register, total = { calls: 0 }): CountedStore {
  const counts = { read: 0, checkIn: 0, write: 0 };
  const hung = new Set<Promise<unknown>>();
  const waiting = new Set<() => void>();
  let old: Awaited<ReturnType<Register["read"]>> | undefined;

  async function call<T>(operation: Operation, { signal }: CallOptions, work: () => Promise<T>): Promise<T> {
    counts[operation] += 1;
    total.calls += 1;
    if (store.isGone || (store.isFull && operation !== "read")) {
      throw new StoreError("ERR_STORE_UNAVAILABLE", "the store is unreachable");
    }
    if (store.hangs || store.isOld) return store.hanging(aborted(signal));
    return (store.hook?.(operation, work) ?? work()) as Promise<T>;
  }

  const store: CountedStore = {
    name: register.name,
    maxBytes: register.maxBytes,
    register,
    isGone: false,
    isFull: false,
    isReadOnly: false,
    hangs: false,
    get isOld() {
      return old !== undefined;
    },
    set isOld(isOld) {
      old = undefined;
      // In memory, a read takes effect when it is called.
      if (isOld) void register.read().then((reading) => (old = reading));
    },
    hook: undefined,
    counts,
    get calls() {
      return total.calls;
    },
    async hung() {
      if (hung.size === 0) await new Promise<void>((resolve) => waiting.add(resolve));
    },
    async hanging(work) {
      hung.add(work);
      for (const resolve of waiting) resolve();
      waiting.clear();
      return work.finally(() => hung.delete(work));
    },
    connection: () => countedStore(register, total),

    async read(known, options = {}) {
      const { confirmed = false } = options;
      if (old !== undefined && !confirmed) {
        counts.read += 1;
        total.calls += 1;
        const { now } = await register.read();
        return { ...old, ...(now !== undefined && { now }) };
      }
      return call(confirmed ? "checkIn" : "read", options, () => register.read(known, options));
    },
    async write(text, ifVersion, options = {}) {
      if (store.isReadOnly) throw readOnly();
      return call("write", options, () => register.write(text, ifVersion, options));
    },
    presence: {
      async put(id, record, options = {}) {
        if (store.isReadOnly) throw readOnly();
        return call("checkIn", options, async () => register.presence?.put(id, record, options));
      },
      list: async (limit, options = {}) =>
        call("read", options, async () => (register.presence as PresenceStore).list(limit, options)),
      drop: async (ids, options = {}) => call("checkIn", options, async () => register.presence?.drop(ids, options)),
    },
    watch(onChange, options) {
      const notify = (): void => {
        if (!store.isGone && !store.isOld && !store.hangs) onChange();
      };
      register.watch?.(notify, options);
    },
  };
  return store;
}

const readOnly = (): StoreError => new StoreError("ERR_STORE_READ_ONLY", "this role may only read");

/** Rejects when the caller aborts. */
const aborted = (signal: AbortSignal | undefined): Promise<never> =>
  new Promise((_, reject) => {
    signal?.addEventListener("abort", () => reject(new Error("given up")), { once: true });
  });
