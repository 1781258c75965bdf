import type { Clock } from "../../src/base/clock.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";

/** A store that a test can also write to directly, ignoring every rule, like a user of its database. */
export class WrittenStore implements Register {
  readonly name = "written by others";
  readonly presence: Register["presence"];
  readonly #watchers = new Set<() => void>();
  readonly #clock: Clock | undefined;
  #stored: { readonly version: string; readonly text: string } | undefined;

  constructor(clock?: Clock) {
    this.#clock = clock;
    this.presence = memoryStore().presence;
  }

  /** Stored document; "" if nothing was ever written. */
  get text(): string {
    return this.#stored?.text ?? "";
  }

  /** Replaces the stored document and calls the watchers. */
  put(text: string): void {
    this.#stored = text === "" ? undefined : { version: crypto.randomUUID(), text };
    for (const notify of this.#watchers) queueMicrotask(notify);
  }

  read: Register["read"] = async (known) => {
    const now = this.#clock && { now: this.#clock.now() };
    return this.#stored !== undefined && this.#stored.version === known
      ? { version: known, ...now }
      : { ...this.#stored, ...now };
  };

  write: Register["write"] = async (text, ifVersion) => {
    if (this.#stored?.version !== ifVersion) return false;
    this.put(text);
    return true;
  };

  watch(onChange: () => void, { signal }: { readonly signal: AbortSignal }): void {
    this.#watchers.add(onChange);
    signal.addEventListener("abort", () => this.#watchers.delete(onChange), { once: true });
  }
}
