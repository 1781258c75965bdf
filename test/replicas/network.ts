import type { Register } from "../../src/rotation/store/register.ts";
import type { Code } from "./changed.ts";
import { type Random, hour, second } from "./machine.ts";

/** What a network or a server does with a call while it is broken. */
export type Broken = "refuses" | "is silent" | "loses answers" | "cannot write";

export interface Break {
  readonly how: Broken;
  readonly until: number;
}

/** Somebody who uses the store. */
export interface Caller {
  readonly life: number;
  pausedUntil: number;
  /** How long it stands still before its next write, after the read for it. */
  freezeMs: number;
  line: Break | undefined;
  /** Talks to a primary that was replaced: it answers plain reads, and cannot write. */
  isOnOld: boolean;
  readonly watchers: Set<() => void>;
}

interface Held {
  readonly version: string;
  readonly text: string;
}

/** What a network needs of its simulation. */
export interface Simulated {
  readonly now: number;
  readonly random: Random;
  readonly code: Code;
  readonly callers: readonly Caller[];
  at(delayMs: number, act: () => void, of?: Caller): () => void;
  /** The clock of the store; none where all are on one machine. */
  storeNow(): number | undefined;
  /** Is called after each write that was written. */
  written(): Promise<void>;
}

/** A store behind a network that does what networks do. */
export class Network {
  storeBreak: Break | undefined;
  /** Until when an older backup is in the place of the store. */
  olderUntil = 0;
  readonly #world: Simulated;
  readonly #real: Register | undefined;
  readonly lines = new Map<string, string>();
  #held: Held | undefined;
  /** What the replaced primary holds. */
  #old: Held | undefined;
  #history: { readonly at: number; readonly held: Held }[] = [];

  /** @param real default: a store of the simulation */
  constructor(world: Simulated, real?: Register) {
    this.#world = world;
    this.#real = real;
  }

  /** The text of the store, as nobody but the simulation knows it. */
  async text(): Promise<string | undefined> {
    return this.#real === undefined ? this.#held?.text : (await this.#real.read()).text;
  }

  broken({ line }: Caller): Broken | undefined {
    const { now } = this.#world;
    if (line !== undefined && line.until > now) return line.how;
    return this.storeBreak !== undefined && this.storeBreak.until > now ? this.storeBreak.how : undefined;
  }

  /** The primary is replaced, and no commit is lost. Some go on talking to the old one. */
  failOver(callers: readonly Caller[], forMs: number): void {
    this.#old = this.#held;
    for (const caller of callers) {
      caller.isOnOld = true;
      this.#world.at(forMs, () => (caller.isOnOld = false));
    }
  }

  /** Puts an older backup in the place of the store for a while. Resolves to whether there was one. */
  goBack(ageMs: number, forMs: number): boolean {
    const { now } = this.#world;
    const newest = this.#held;
    const older = this.#history.findLast(({ at }) => at <= now - ageMs)?.held;
    if (older === undefined || older === newest) return false;
    this.#held = older;
    this.olderUntil = now + forMs;
    this.#world.at(forMs, () => (this.#held = newest));
    return true;
  }

  line(caller: Caller): Register {
    const read = (known?: string, isConfirmed = false) =>
      this.#call(caller, isConfirmed ? "confirm" : "read", () => this.#read(known, caller.isOnOld));
    return {
      name: "a simulated store",
      read: (known, { confirmed = false } = {}) => read(known, confirmed),
      write: (text, ifVersion) => this.#call(caller, "write", () => this.#write(text, ifVersion)),
      presence: {
        put: (id, record) => this.#call(caller, "put", async () => void this.lines.set(id, record)),
        list: () => this.#call(caller, "read", async () => ({ records: new Map(this.lines), count: this.lines.size })),
        drop: (ids) => this.#call(caller, "put", async () => ids.forEach((id) => this.lines.delete(id))),
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
    const held = isOld ? this.#old : this.#held;
    return held?.version === known && known !== undefined ? { version: known, ...time } : { ...held, ...time };
  }

  async #write(text: string, ifVersion: string | undefined): Promise<boolean> {
    const { random, now } = this.#world;
    const apply = async (): Promise<boolean> => {
      if (this.#real !== undefined) return this.#real.write(text, ifVersion);
      if (this.#held?.version !== ifVersion) return false;
      this.#held = { version: String(random.upTo(1)), text };
      this.#history.push({ at: now, held: this.#held });
      return true;
    };
    const isWritten = await apply();
    if (isWritten) await this.#told();
    // A driver repeats a statement of which it lost the answer, and the second one finds another version.
    return isWritten && !random.chance(0.05);
  }

  async #told(): Promise<void> {
    const { callers, random } = this.#world;
    await this.#world.written();
    for (const caller of callers) {
      for (const notify of caller.watchers) {
        // It is only faster than the next look.
        if (this.broken(caller) === undefined && !caller.isOnOld && random.chance(0.9))
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
      const answer = (act: () => void): void => void this.#world.at(this.#latency(), act, caller);
      const unreachable = (): void => {
        // Of a write, nobody knows then whether it was written.
        if (isWrite) reject(new Error("no answer"));
        else reject(new code.StoreError("ERR_STORE_UNAVAILABLE", "no answer"));
      };
      const arrive = (): void => {
        const how = this.broken(caller);
        if (caller.isOnOld && kind !== "read") return;
        if (how === "refuses" || (how === "cannot write" && kind !== "read")) {
          answer(() => reject(new code.StoreError("ERR_STORE_UNAVAILABLE", "the store is away")));
          return;
        }
        if (how === "is silent") {
          // What was given up may still arrive.
          if (isWrite && random.chance(0.2)) this.#world.at(random.log(second, hour), () => void run());
          if (random.chance(0.3)) answer(unreachable);
          return;
        }
        const reply = (act: () => void): void =>
          // The line may be cut in between.
          void this.#world.at(this.#latency(), () => {
            const lost = this.broken(caller);
            if (lost === undefined || lost === "cannot write") answer(act);
            else if (random.chance(0.5)) answer(unreachable);
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
