import { type Clock, type Instant, instantNow, longestSince } from "../../base/clock.ts";
import { StoreError } from "../../base/errors.ts";
import type { Custody } from "../custody/custody.ts";
import { activeKey } from "../rules/records.ts";
import type { KeysInUse } from "./keys-in-use.ts";
import { deadLines, lineText, readPresence } from "../custody/presence.ts";
import type { StoreAccess } from "./store-access.ts";

/** How many confirmed words a process has with its store within `maxStaleSeconds`. */
const words = 6;

export interface ProcessName {
  /** Another one for each start. */
  readonly id: string;
  /** How people call the process. */
  readonly name: string;
  /** The version of jwksd. */
  readonly version?: string | undefined;
}

export interface WordOptions {
  readonly custody: Custody;
  readonly access: StoreAccess;
  readonly inUse: KeysInUse;
  readonly process: ProcessName;
  readonly signs: boolean;
  readonly clock: Clock;
  /** The time of the store. */
  readonly storeNow: () => number;
}

/** The confirmed word of a process with its store: the age of what it has read counts from there. */
export interface Word {
  /** When the last one was sent. */
  readonly sent: Instant | undefined;
  /** How long it is until the next one is due, in milliseconds. */
  readonly dueInMs: number;
  /**
   * Writes the line of this process, and then reads: both prove that the store is the primary, and not one that was replaced. Gives when that
   * was sent.
   */
  have(): Promise<Instant>;
  /** Writes the line of this process, if it says something new. */
  tell(): Promise<void>;
}

export function createWord({ custody, access, inUse, process, signs, clock, storeNow }: WordOptions): Word {
  let sent: Instant | undefined;
  let told: string | undefined;

  function line() {
    const { keys, published } = inUse.state;
    const active = activeKey(inUse.records, "sig");
    const isSigning = signs && active !== undefined && keys.signers.has(active.kid);
    return {
      ...process,
      revision: published?.document.revision ?? 0,
      commit: published?.document.commits.at(-1),
      kid: isSigning ? active.kid : undefined,
      signs,
      wrappingKeys: custody.wrappingKeys,
    };
  }

  async function write(): Promise<void> {
    const next = line();
    await access.present(process.id, lineText({ ...next, at: storeNow() })).catch((error: unknown) => {
      // A process that may only read has no line.
      if (!(error instanceof StoreError && error.code === "ERR_STORE_READ_ONLY")) throw error;
    });
    told = JSON.stringify(next);
  }

  async function sweep(): Promise<void> {
    const lines = readPresence(await access.lines());
    for (const { id } of deadLines(lines, storeNow())) await access.leave(id);
  }

  return {
    get sent() {
      return sent;
    },
    get dueInMs() {
      const { document } = inUse.state;
      if (document === undefined || sent === undefined) return 0;
      return Math.max((document.policy.maxStaleSeconds * 1000) / words - longestSince(sent, clock), 0);
    },
    async have() {
      const next = instantNow(clock);
      await write();
      await access.read({ confirmed: true });
      // Only people look at lines, so this may fail.
      if (sent === undefined) await sweep().catch(() => {});
      sent = next;
      return next;
    },
    async tell() {
      if (JSON.stringify(line()) !== told) await write();
    },
  };
}
