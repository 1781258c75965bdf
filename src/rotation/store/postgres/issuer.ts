import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { JwksdError, StoreError } from "../../../base/errors.ts";
import { checkRevision, damagedIn } from "../check.ts";
import {
  type LeaseRow,
  checkLeases,
  checkRenewal,
  forgottenAt,
  leaseEnded,
  leaseExists,
  newLease,
  readLease,
  settingsText,
  timeOf,
} from "../leases.ts";
import type { Changes } from "./changes.ts";
import { CommitLost, type Connections, type Query } from "./driver.ts";
import { isSerialization, postgresError } from "./errors.ts";
import {
  addCommitQuery,
  addEventsQuery,
  commitQuery,
  eventsQuery,
  forgetLeasesQuery,
  holdQuery,
  joinQuery,
  leaveQuery,
  renewQuery,
  snapshotQuery,
  writeRecordsQuery,
} from "./queries.ts";
import { type PlacedRow, parseObject, recordsIn, rowsToWrite } from "../rows.ts";
import type { KeyEvent, KeyStore, Snapshot } from "../store.ts";

const maxAttempts = 10;

type UnknownCode = "ERR_COMMIT_UNKNOWN" | "ERR_STORE_UNAVAILABLE";

/** What a writer holds until its transaction ends. */
interface Held {
  readonly query: Query;
  readonly id: string;
  readonly revision: number;
  readonly now: number;
  /** Whether the outcome of an earlier attempt is unknown. */
  readonly isRepeated: boolean;
}

/** A snapshot, with the records as they are stored. */
interface Stored extends Omit<Snapshot, "records"> {
  readonly rows: readonly PlacedRow[];
}

/** The store of one issuer. Its `close` leaves the connections to the others. @param name how messages call it */
export function postgresStore(connections: Connections, changes: Changes, issuer: string, name: string): KeyStore {
  /** The newest commit that this handle has seen. The handle takes the history of this commit, and no other. */
  let seen: { readonly revision: number; readonly commit: string | undefined } = { revision: 0, commit: undefined };
  const closing = new AbortController();
  const damaged = (what: string): StoreError => damagedIn(what, name);

  async function read(query: Query): Promise<Stored> {
    const before = seen;
    const [row = {}] = await query(snapshotQuery, [issuer, before.revision]);
    if (row["readOnly"] === "true") {
      throw new StoreError(
        "ERR_STORE_UNAVAILABLE",
        `the store ${name} can only be read, as a standby; name the primary`,
      );
    }
    const revision = Number(row["revision"] ?? 0);
    if (before.commit !== undefined && row["known"] !== before.commit) {
      throw new StoreError(
        "ERR_RECORDS_INVALID",
        `the store ${name} is at revision ${revision}, and revision ${before.revision}, which it had, is no longer there: it is an older copy; put the newest one back, or restart to go on with this one`,
      );
    }
    if (revision > seen.revision) seen = { revision, commit: row["commit"] as string };
    const rows = jsonIn(row["records"]) as PlacedRow[];
    // Where positions have a gap or are out of order, somebody has changed the rows, and a commit would overwrite a wrong one.
    const moved = rows.findIndex(({ position }, index) => position !== index);
    if (moved !== -1) throw damaged(`record ${moved + 1}`);
    const mac = (row["mac"] as string | null) ?? undefined;
    const leases = jsonIn(row["leases"]) as LeaseRow[];
    return {
      revision,
      rows,
      ...(mac !== undefined && { mac }),
      now: Number(row["now"]),
      leases: leases.map((lease) => readLease(lease, `the store ${name}`)),
      ended: jsonIn(row["ended"]) as string[],
    };
  }

  /** Runs a transaction of one issuer, alone. @param unknown as of {@link repeat} */
  function write<T>(
    signal: AbortSignal | undefined,
    unknown: UnknownCode,
    work: (held: Held) => Promise<T>,
  ): Promise<T> {
    return repeat(signal, unknown, (isRepeated) =>
      connections.transaction(async (query) => {
        const [row = {}] = await query(holdQuery, [issuer]);
        const [revision, now] = [Number(row["revision"]), Number(row["now"])];
        const result = await work({ query, id: row["id"] as string, revision, now, isRepeated });
        signal?.throwIfAborted();
        return result;
      }),
    );
  }

  /**
   * Writes; tries again where another writer was quicker, and where the outcome of a commit is unknown.
   *
   * @param unknown the code of the error where the outcome stays unknown
   */
  async function repeat<T>(
    signal: AbortSignal | undefined,
    unknown: UnknownCode,
    write: (isRepeated: boolean) => Promise<T>,
  ): Promise<T> {
    let lost: CommitLost | undefined;
    const startMs = performance.now();
    for (let attempt = 1; ; attempt += 1) {
      check(signal);
      try {
        return await write(lost !== undefined);
      } catch (error) {
        if (error instanceof CommitLost) lost = error;
        else if (lost === undefined) {
          if (!isSerialization(error) || attempt === maxAttempts) throw translated(error, signal);
        }
        // This error was found while nobody else could write, so it is certain, also about the earlier attempts.
        else if (error instanceof JwksdError && error.code !== "ERR_STORE_UNAVAILABLE") throw error;
      }
      if (lost !== undefined && performance.now() - startMs > connections.timeoutMs * 2) {
        const message = `the answer to a commit was lost, and the store ${name} cannot be asked for it; it may have been written`;
        throw new StoreError(unknown, message, { cause: postgresError(lost.cause, name) });
      }
      // At random, so that two writers that collided do not collide again.
      await delay(Math.random() * Math.min(2 ** attempt, 500));
    }
  }

  function check(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (!closing.signal.aborted) return;
    throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${name} was closed; open it again`);
  }

  function translated(error: unknown, signal: AbortSignal | undefined): unknown {
    return signal?.aborted === true ? error : postgresError(error, name);
  }

  return {
    async load({ signal } = {}) {
      check(signal);
      try {
        const { rows, ...stored } = await read((...args) => connections.query(...args));
        changes.loaded(issuer, stored.revision);
        return { ...stored, records: recordsIn(rows, damaged) };
      } catch (error) {
        throw translated(error, signal);
      }
    },

    async commit(expectedRevision, records, events, { signal, mac, leases } = {}) {
      const commit = randomUUID();
      const revision = expectedRevision + 1;
      await write(signal, "ERR_COMMIT_UNKNOWN", async (held) => {
        const { query, id, isRepeated } = held;
        if (isRepeated && (await query(commitQuery, [id, revision, commit])).length > 0) return;
        const stored = await read(query);
        checkRevision(stored.revision, expectedRevision);
        const changed = rowsToWrite(stored.rows, records);
        if (leases !== undefined) checkLeases(stored.leases, leases);
        const columns = (["position", "kid", "record"] as const).map((name) => changed.map((row) => row[name]));
        await query(writeRecordsQuery, [id, ...columns]);
        await query(addEventsQuery, [id, events.map((event) => JSON.stringify(event))]);
        await query(addCommitQuery, [id, revision, commit, mac ?? null]);
        await query("UPDATE jwksd.issuers SET revision = $2 WHERE id = $1", [id, revision]);
      });
      if (revision > seen.revision) seen = { revision, commit };
      changes.announce();
      return revision;
    },

    async join(lease, forMs, { signal } = {}) {
      const joining = newLease(lease, 0, forMs);
      const { id: leaseId, name } = joining;
      await write(signal, "ERR_STORE_UNAVAILABLE", async ({ query, id, now, isRepeated }) => {
        await query(forgetLeasesQuery, [id, forgottenAt(now)]);
        const time = timeOf(now, forMs);
        const joined = await query(joinQuery, [id, leaseId, name, settingsText(joining), time.forMs, time.until]);
        // The lease may be there from the first attempt, whose answer was lost: ids are new.
        if (joined.length === 0 && !isRepeated) throw leaseExists(leaseId);
      });
    },

    async renew(lease, forMs, { signal, ifRevision, serial } = {}) {
      checkRenewal(lease);
      const { id, publishes, signsWith } = lease;
      const told = [publishes, JSON.stringify(signsWith), timeOf(0, forMs).forMs, serial ?? null];
      const values = [issuer, id, ...told, ifRevision ?? null, connections.limit];
      const renew = () => connections.query(renewQuery, values);
      const [row = {}] = await repeat(signal, "ERR_STORE_UNAVAILABLE", renew);
      const revision = Number(row["revision"] ?? 0);
      if (row["renewed"] === "true") return revision;
      checkRevision(revision, ifRevision ?? revision);
      throw leaseEnded(id);
    },

    async leave(leaseId, { signal, ifSerial } = {}) {
      await write(signal, "ERR_STORE_UNAVAILABLE", ({ query, id }) =>
        query(leaveQuery, [id, leaseId, ifSerial ?? null]),
      );
    },

    async events({ limit = Infinity, before = Infinity, signal } = {}) {
      check(signal);
      const range = [before, limit].map((value) => Math.min(value, Number.MAX_SAFE_INTEGER));
      const rows = await connections.query(eventsQuery, [issuer, ...range]).catch((error: unknown) => {
        throw translated(error, signal);
      });
      return rows.map(({ number, event }) => {
        const parsed = parseObject(event as string, () => damaged(`event ${String(number)}`)) as KeyEvent;
        return Object.assign(parsed, { number: Number(number) });
      });
    },

    watch(onChange, { signal }) {
      const both = AbortSignal.any([signal, closing.signal]);
      if (!both.aborted) changes.watch(issuer, seen.revision, onChange, both);
    },

    async close() {
      closing.abort();
    },
  };
}

/** The JSON that the query makes. Somebody else may have written its values. */
const jsonIn = (text: unknown): unknown => JSON.parse((text as string | null) ?? "[]");
