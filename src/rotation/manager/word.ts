import { type Clock, type Instant, instantNow, longestSince } from "../../base/clock.ts";
import { StoreError } from "../../base/errors.ts";
import { printable } from "../../base/printable.ts";
import { durationText, someOf } from "../../base/format.ts";
import type { Custody } from "../custody/custody.ts";
import type { StoreDocument } from "../custody/document.ts";
import { activeKey } from "../rules/records.ts";
import type { KeysInUse } from "./keys-in-use.ts";
import { type PresenceRecord, lineText, livePresence } from "../custody/presence.ts";
import type { StoreAccess } from "./store-access.ts";
import type { ManagerEvent } from "./types.ts";

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
  readonly emit: (event: ManagerEvent) => void;
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

export function createWord({ custody, access, inUse, process, signs, clock, storeNow, emit }: WordOptions): Word {
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

  /** Reports processes whose store has lost its keys, and removes the presence records that no running process has written. */
  async function sweep(found: StoreDocument): Promise<void> {
    const list = await access.presence();
    const { processes } = livePresence(list, storeNow(), found);
    const others = processes.filter(({ revision }) => revision > 0);
    // Another process may have made the first keys after they were looked for.
    const isEmptied = found.revision === 0 && others.length > 0 && (await access.read()).document.revision === 0;
    if (isEmptied) emit({ type: "store-emptied", error: emptied(custody.owner.issuer, others, storeNow()) });
    const live = new Set(processes.map(({ id }) => id));
    const ended = [...list.records.keys()].filter((id) => !live.has(id));
    if (ended.length > 0) await access.forget(ended);
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
      const { document } = await access.read({ confirmed: true });
      // Presence records are for people only, so this may fail.
      await sweep(document).catch(() => {});
      sent = next;
      return next;
    },
    async tell() {
      if (JSON.stringify(line()) !== told) await write();
    },
  };
}

function emptied(issuer: string, processes: readonly PresenceRecord[], now: number): StoreError {
  const named = someOf(
    processes,
    ({ name, at }) => `"${printable(name)}" (last check-in ${durationText(now - at)} ago)`,
  );
  return new StoreError(
    "ERR_STORE_EMPTY",
    `processes of ${issuer} are running, and the store has no keys: ${named}; stop this process, and if the store was emptied, see "A lost store" in docs/emergencies.md`,
  );
}
