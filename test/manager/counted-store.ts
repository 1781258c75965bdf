import { StoreError } from "../../src/base/errors.ts";
import type { Presence, Register, StoreCall } from "../../src/rotation/store/register.ts";

/** `checkIn`: a confirmed read, or a call for presence records. */
export type Operation = "read" | "checkIn" | "write";

/** A real store that fails in every way, and counts what it is asked. */
export interface CountedStore extends Register {
  /** Behind the faults of this line. */
  readonly register: Register;
  /** No call succeeds while it is; nobody is told of commits. */
  isGone: boolean;
  /** It can be read, as on a full disk. */
  isFull: boolean;
  /** This process may read it, and not write. */
  isReadOnly: boolean;
  /** No call is answered, and signals are ignored. */
  hangs: boolean;
  /** This line leads to a primary that was replaced: it goes on answering plain reads, and nothing else. */
  isOld: boolean;
  /** Stands before each call, which it may let go, hold or replace. */
  hook: ((operation: Operation, go: () => Promise<unknown>) => Promise<unknown>) | undefined;
  readonly counts: Readonly<Record<Operation, number>>;
  /** All calls, by other lines too. */
  readonly calls: number;
  /** Resolves when a call hangs. */
  hung(): Promise<void>;
  /** A call that is under way hangs, for the world that waits for it, until it ends. */
  hanging<T>(work: Promise<T>): Promise<T>;
  /** The same store over another line, which can be cut by itself. */
  line(): CountedStore;
}

export function countedStore(register: Register, total = { calls: 0 }): CountedStore {
  const counts = { read: 0, checkIn: 0, write: 0 };
  const hung = new Set<Promise<unknown>>();
  const waiting = new Set<() => void>();
  let old: Awaited<ReturnType<Register["read"]>> | undefined;

  async function call<T>(operation: Operation, { signal }: StoreCall, work: () => Promise<T>): Promise<T> {
    counts[operation] += 1;
    total.calls += 1;
    if (store.isGone || (store.isFull && operation !== "read")) {
      throw new StoreError("ERR_STORE_UNAVAILABLE", "the store is out of reach");
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
      // In memory, a read is done when it is called.
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
    line: () => countedStore(register, total),

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
        call("read", options, async () => (register.presence as Presence).list(limit, options)),
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

/** Ends when the caller gives the call up, and then not at once. */
const aborted = (signal: AbortSignal | undefined): Promise<never> =>
  new Promise((_, reject) => {
    signal?.addEventListener("abort", () => reject(new Error("given up")), { once: true });
  });
