import type { Register } from "../../src/rotation/store/register.ts";
import type { Code } from "./changed.ts";
import { type Random, hour, second } from "./machine.ts";

/** The behavior of a broken network or server. */
export type BreakKind = "refuses" | "is silent" | "loses responses" | "cannot write";

export interface Break {
  readonly kind: BreakKind;
  readonly until: number;
}

/** A client of the store. */
export interface Caller {
  readonly life: number;
  pausedUntil: number;
  /** Time for which it freezes between its next read and the write that follows. */
  freezeMs: number;
  connection: Break | undefined;
  /** Whether it is connected to a replaced primary, which answers plain reads but cannot write. */
  isOnOld: boolean;
  readonly watchers: Set<() => void>;
}

interface Stored {
  readonly version: string;
  readonly text: string;
}

/** The part of a simulation that a network needs. */
export interface Simulated {
  readonly now: number;
  readonly random: Random;
  readonly code: Code;
  readonly callers: readonly Caller[];
  at(delayMs: number, act: () => void, of?: Caller): () => void;
  /** Returns the time according to the store's clock; `undefined` if all processes are on one machine. */
  storeNow(): number | undefined;
  /** Called after each successful write. */
  written(): Promise<void>;
}

/** A store behind an unreliable network. */
export class Network {
  storeBreak: Break | undefined;
  /** Time until which an older backup replaces the store. */
  olderUntil = 0;
  readonly #world: Simulated;
  readonly #real: Register | undefined;
  readonly presence = new Map<string, string>();
  #stored: Stored | undefined;
  /** Content of the replaced primary. */
  #old: Stored | undefined;
  #history: { readonly at: number; readonly stored: Stored }[] = [];

  /** @param real real store. Default: a simulated one */
  constructor(world: Simulated, real?: Register) {
    this.#world = world;
    this.#real = real;
  }

  /** Returns the stored document, regardless of faults. */
  async text(): Promise<string | undefined> {
    return this.#real === undefined ? this.#stored?.text : (await this.#real.read()).text;
  }

  breakOf({ connection }: Caller): BreakKind | undefined {
    const { now } = this.#world;
    if (connection !== undefined && connection.until > now) return connection.kind;
    return this.storeBreak !== undefined && this.storeBreak.until > now ? this.storeBreak.kind : undefined;
  }

  /** Replaces the primary without losing a commit. These callers stay connected to the old one for a while. */
  failOver(callers: readonly Caller[], forMs: number): void {
    this.#old = this.#stored;
    for (const caller of callers) {
      caller.isOnOld = true;
      this.#world.at(forMs, () => (caller.isOnOld = false));
    }
  }

  /** Replaces the store with an older backup for a while. @returns whether there was one */
  goBack(ageMs: number, forMs: number): boolean {
    const { now } = this.#world;
    const latest = this.#stored;
    const older = this.#history.findLast(({ at }) => at <= now - ageMs)?.stored;
    if (older === undefined || older === latest) return false;
    this.#stored = older;
    this.olderUntil = now + forMs;
    this.#world.at(forMs, () => (this.#stored = latest));
    return true;
  }

  registerFor(caller: Caller): Register {
    const read = (known?: string, isConfirmed = false) =>
      this.#call(caller, isConfirmed ? "confirm" : "read", () => this.#read(known, caller.isOnOld));
    return {
      name: "a simulated store",
      read: (known, { confirmed = false } = {}) => read(known, confirmed),
      write: (text, ifVersion) => this.#call(caller, "write", () => this.#write(text, ifVersion)),
      presence: {
        put: (id, record) => this.#call(caller, "put", async () => void this.presence.set(id, record)),
        list: () =>
          this.#call(caller, "read", async () => ({ records: new Map(this.presence), count: this.presence.size })),
        drop: (ids) => this.#call(caller, "put", async () => ids.forEach((id) => this.presence.delete(id))),
      },
      watch: (onChange, { signal }) => {
        caller.watchers.add(onChange);
        signal.addEventListener("abort", () => caller.watchers.delete(onChange), { once: true });
      },
    };
  }

  async #read(known: string | undefined, isOld: boolean) {
    const now = this.#world.storeNow();
    const time = now !== undefined && { now };
    if (this.#real !== undefined) return this.#real.read(known);
    const stored = isOld ? this.#old : this.#stored;
    return stored?.version === known && known !== undefined ? { version: known, ...time } : { ...stored, ...time };
  }

  async #write(text: string, ifVersion: string | undefined): Promise<boolean> {
    const { random, now } = this.#world;
    const apply = async (): Promise<boolean> => {
      if (this.#real !== undefined) return this.#real.write(text, ifVersion);
      if (this.#stored?.version !== ifVersion) return false;
      this.#stored = { version: String(random.upTo(1)), text };
      this.#history.push({ at: now, stored: this.#stored });
      return true;
    };
    const isWritten = await apply();
    if (isWritten) await this.#notify();
    // A driver repeats a statement whose response was lost, and the second one finds another version.
    return isWritten && !random.chance(0.05);
  }

  async #notify(): Promise<void> {
    const { callers, random } = this.#world;
    await this.#world.written();
    for (const caller of callers) {
      for (const notify of caller.watchers) {
        // Notifications are unreliable; the next poll also finds the write.
        if (this.breakOf(caller) === undefined && !caller.isOnOld && random.chance(0.9))
          this.#world.at(this.#latency(), notify, caller);
      }
    }
  }

  #latency(): number {
    const { random } = this.#world;
    return random.chance(0.02) ? random.upTo(6 * second) : random.between(1, 20);
  }

  #call<T>(caller: Caller, kind: "read" | "confirm" | "write" | "put", run: () => Promise<T>): Promise<T> {
    const { life } = caller;
    const { random, code } = this.#world;
    return new Promise<T>((resolve, reject) => {
      if (caller.life !== life) return;
      const frozenMs = kind === "write" ? caller.freezeMs : 0;
      if (frozenMs > 0) [caller.freezeMs, caller.pausedUntil] = [0, this.#world.now + frozenMs];
      const isWrite = kind === "write" || kind === "put";
      const respond = (act: () => void): void => void this.#world.at(this.#latency(), act, caller);
      const timeOut = (): void => {
        // The outcome of a write is unknown then.
        if (isWrite) reject(new Error("no response"));
        else reject(new code.StoreError("ERR_STORE_UNAVAILABLE", "no response"));
      };
      const arrive = (): void => {
        const fault = this.breakOf(caller);
        if (caller.isOnOld && kind !== "read") return;
        if (fault === "refuses" || (fault === "cannot write" && kind !== "read")) {
          respond(() => reject(new code.StoreError("ERR_STORE_UNAVAILABLE", "the store is unavailable")));
          return;
        }
        if (fault === "is silent") {
          // An abandoned write may still arrive.
          if (isWrite && random.chance(0.2)) this.#world.at(random.log(second, hour), () => void run());
          if (random.chance(0.3)) respond(timeOut);
          return;
        }
        const reply = (act: () => void): void =>
          // The connection may break before the response.
          void this.#world.at(this.#latency(), () => {
            const lost = this.breakOf(caller);
            if (lost === undefined || lost === "cannot write") respond(act);
            else if (random.chance(0.5)) respond(timeOut);
          });
        run().then(
          (value) => reply(() => resolve(value)),
          (error: Error) => reply(() => reject(error)),
        );
      };
      this.#world.at(frozenMs + this.#latency(), arrive);
    });
  }
}
