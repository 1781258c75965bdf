import type { Clock } from "../../src/base/clock.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";

/** A store that somebody else can write as well, byte by byte, past every rule: as a user of its database can. */
export class WrittenStore implements Register {
  readonly name = "written by others";
  readonly presence: Register["presence"];
  readonly #watchers = new Set<() => void>();
  readonly #clock: Clock | undefined;
  #held: { readonly version: string; readonly text: string } | undefined;

  constructor(clock?: Clock) {
    this.#clock = clock;
    this.presence = memoryStore().presence;
  }

  /** What is in it now; "" where nothing was ever written. */
  get text(): string {
    return this.#held?.text ?? "";
  }

  /** Puts something else in its place, and those who watch it notice. */
  put(text: string): void {
    this.#held = text === "" ? undefined : { version: crypto.randomUUID(), text };
    for (const notify of this.#watchers) queueMicrotask(notify);
  }

  read: Register["read"] = async (known) => {
    const now = this.#clock && { now: this.#clock.now() };
    return this.#held !== undefined && this.#held.version === known
      ? { version: known, ...now }
      : { ...this.#held, ...now };
  };

  write: Register["write"] = async (text, ifVersion) => {
    if (this.#held?.version !== ifVersion) return false;
    this.put(text);
    return true;
  };

  watch(onChange: () => void, { signal }: { readonly signal: AbortSignal }): void {
    this.#watchers.add(onChange);
    signal.addEventListener("abort", () => this.#watchers.delete(onChange), { once: true });
  }
}
