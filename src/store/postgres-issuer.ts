import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { JwksdError, StoreError } from "../errors.ts";
import { checkRevision } from "./check.ts";
import { KeptRecords, parseObject } from "./kept-records.ts";
import {
  checkLeases,
  checkRenewal,
  forgottenAt,
  leaseEnded,
  leaseExists,
  newLease,
  readLease,
  timeOf,
} from "./leases.ts";
import type { Changes } from "./postgres-changes.ts";
import { CommitLost, type Connections, type Query } from "./postgres-driver.ts";
import { isSerialization, postgresError } from "./postgres-errors.ts";
import type {
  CommitOptions,
  KeyEvent,
  KeyRecord,
  KeyStore,
  Lease,
  LeaseSeen,
  RenewOptions,
  Snapshot,
  StoreCall,
} from "./store.ts";

const maxAttempts = 10;

const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/** One statement, so that it sees one moment. Records: those that have changed since the revision that is known. */
const snapshotQuery = `SELECT
  (pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')::text AS "readOnly",
  time.now::text AS now, issuer.revision::text AS revision, newest.id AS commit, newest.seal AS seal,
  (SELECT id FROM jwksd.commits WHERE issuer_id = issuer.id AND revision = $2::bigint) AS known,
  (SELECT json_agg(json_build_array(position, kid, record) ORDER BY position)
     FROM jwksd.keys WHERE issuer_id = issuer.id AND revision > $2::bigint)::text AS records,
  (SELECT json_agg(json_build_object('id', id, 'name', name, 'publishes', publishes, 'signsWith', signs_with, 'serial', serial,
     'forMs', for_ms, 'until', until) ORDER BY number) FROM jwksd.leases WHERE issuer_id = issuer.id AND NOT ended)::text AS leases,
  (SELECT json_agg(id) FROM jwksd.leases WHERE issuer_id = issuer.id AND ended)::text AS ended
FROM (SELECT ${now} AS now) AS time
LEFT JOIN jwksd.issuers AS issuer ON issuer.issuer = $1
LEFT JOIN jwksd.commits AS newest ON newest.issuer_id = issuer.id AND newest.revision = issuer.revision`;

const eventsQuery = `SELECT number::text AS number, event FROM jwksd.events
WHERE issuer_id = (SELECT id FROM jwksd.issuers WHERE issuer = $1) AND number < $2 ORDER BY events.number DESC LIMIT $3`;

/** Waits for whoever else writes. The time is that of after the waiting. */
const holdQuery = `INSERT INTO jwksd.issuers (issuer, revision, writes) VALUES ($1, 0, 0)
ON CONFLICT (issuer) DO UPDATE SET writes = issuers.writes + 1
RETURNING id::text AS id, revision::text AS revision, ${now}::text AS now`;

const commitQuery = "SELECT FROM jwksd.commits WHERE issuer_id = $1 AND revision = $2 AND id = $3";
const addCommitQuery = "INSERT INTO jwksd.commits (issuer_id, revision, id, seal) VALUES ($1, $2, $3, $4)";

const writeRecordsQuery = `INSERT INTO jwksd.keys (issuer_id, revision, position, kid, record)
SELECT $1, $2, * FROM unnest($3::integer[], $4::text[], $5::text[])
ON CONFLICT (issuer_id, position) DO UPDATE SET record = excluded.record, revision = excluded.revision`;

const addEventsQuery = `INSERT INTO jwksd.events (issuer_id, number, event)
SELECT $1, (SELECT coalesce(max(number), 0) FROM jwksd.events WHERE issuer_id = $1) + place, event
FROM unnest($2::text[]) WITH ORDINALITY AS added (event, place)`;

const forgetLeasesQuery = "DELETE FROM jwksd.leases WHERE issuer_id = $1 AND ended AND until <= $2";

const joinQuery = `INSERT INTO jwksd.leases (issuer_id, id, name, publishes, signs_with, for_ms, until)
VALUES ($1, $2, $3, 0, '[]', $4, $5) ON CONFLICT (issuer_id, id) DO NOTHING RETURNING id`;

const renewQuery = `UPDATE jwksd.leases SET publishes = $3, signs_with = $4, for_ms = $5, until = $6, serial = coalesce($7::bigint, serial + 1)
WHERE issuer_id = $1 AND id = $2 AND NOT ended AND serial <= coalesce($7::bigint, serial) RETURNING id`;

const leaveQuery = `UPDATE jwksd.leases SET ended = true
WHERE issuer_id = $1 AND id = $2 AND serial = coalesce($3::bigint, serial)`;

/** What a writer holds until its transaction ends. */
interface Held {
  readonly query: Query;
  readonly id: string;
  readonly revision: number;
  readonly now: number;
  /** Whether an attempt came before of which nobody knows what it did. */
  readonly isRepeated: boolean;
}

/** The store of one issuer. Its {@link close} leaves the connections to the others. */
export class PostgresStore implements KeyStore {
  readonly #connections: Connections;
  readonly #changes: Changes;
  readonly #issuer: string;
  /** How messages call it. */
  readonly #name: string;
  readonly #kept = new KeptRecords();
  /** The newest commit that this handle has seen. Its history is the only one that it takes. */
  #seen: { readonly revision: number; readonly commit: string | undefined } = { revision: 0, commit: undefined };
  readonly #closing = new AbortController();

  constructor(connections: Connections, changes: Changes, issuer: string, name: string) {
    this.#connections = connections;
    this.#changes = changes;
    this.#issuer = issuer;
    this.#name = name;
  }

  async load({ signal }: StoreCall = {}) {
    this.#check(signal);
    try {
      const read = await this.#read((...args) => this.#connections.query(...args));
      this.#changes.loaded(this.#issuer, read.revision);
      return read;
    } catch (error) {
      throw this.#translated(error, signal);
    }
  }

  async commit(
    expectedRevision: number,
    records: readonly KeyRecord[],
    events: readonly KeyEvent[],
    { signal, seal, leases }: CommitOptions = {},
  ) {
    const commit = randomUUID();
    const revision = expectedRevision + 1;
    const changes = await this.#write(
      signal,
      "ERR_COMMIT_UNKNOWN",
      async ({ query, id, revision: stored, isRepeated }) => {
        if (isRepeated && (await query(commitQuery, [id, revision, commit])).length > 0) return undefined;
        const read = await this.#read(query);
        checkRevision(stored, expectedRevision);
        const changes = this.#kept.changesTo(records);
        if (leases !== undefined) checkLeases(read.leases, leases);
        const columns = (["position", "kid", "record"] as const).map((name) => changes.map((change) => change[name]));
        await query(writeRecordsQuery, [id, revision, ...columns]);
        await query(addEventsQuery, [id, events.map((event) => JSON.stringify(event))]);
        await query(addCommitQuery, [id, revision, commit, seal ?? null]);
        await query("UPDATE jwksd.issuers SET revision = $2 WHERE id = $1", [id, revision]);
        return changes;
      },
    );
    // Where the answer was lost, loading reads what was written.
    if (changes !== undefined && this.#seen.revision === expectedRevision) {
      this.#kept.apply(changes);
      this.#seen = { revision, commit };
    }
    this.#changes.announce();
    return revision;
  }

  async join(lease: Pick<Lease, "id" | "name">, forMs: number, { signal }: StoreCall = {}) {
    const { id: leaseId, name } = newLease(lease, 0, forMs);
    await this.#write(signal, "ERR_STORE_UNAVAILABLE", async ({ query, id, now, isRepeated }) => {
      await query(forgetLeasesQuery, [id, forgottenAt(now)]);
      const time = timeOf(now, forMs);
      const joined = await query(joinQuery, [id, leaseId, name, time.forMs, time.until]);
      // The one that is there may be one's own, whose answer was lost: ids are new.
      if (joined.length === 0 && !isRepeated) throw leaseExists(leaseId);
    });
  }

  async renew(lease: LeaseSeen, forMs: number, { signal, ifRevision, serial }: RenewOptions = {}) {
    checkRenewal(lease);
    timeOf(0, forMs);
    const { id: leaseId, publishes, signsWith } = lease;
    return this.#write(signal, "ERR_STORE_UNAVAILABLE", async ({ query, id, revision, now }) => {
      const time = timeOf(now, forMs);
      const told = [publishes, JSON.stringify(signsWith), time.forMs, time.until, serial ?? null];
      const renewed = await query(renewQuery, [id, leaseId, ...told]);
      if (renewed.length === 0) throw leaseEnded(leaseId);
      checkRevision(revision, ifRevision ?? revision);
      return revision;
    });
  }

  async leave(leaseId: string, { signal, ifSerial }: StoreCall & { readonly ifSerial?: number | undefined } = {}) {
    await this.#write(signal, "ERR_STORE_UNAVAILABLE", ({ query, id }) =>
      query(leaveQuery, [id, leaseId, ifSerial ?? null]),
    );
  }

  async events({
    limit = Infinity,
    before = Infinity,
    signal,
  }: StoreCall & { readonly limit?: number | undefined; readonly before?: number | undefined } = {}) {
    this.#check(signal);
    const range = [before, limit].map((value) => Math.min(value, Number.MAX_SAFE_INTEGER));
    const rows = await this.#connections.query(eventsQuery, [this.#issuer, ...range]).catch((error: unknown) => {
      throw this.#translated(error, signal);
    });
    return rows.map(({ number, event }) => {
      const parsed = parseObject(event as string, () => this.#damaged(`event ${String(number)}`)) as KeyEvent;
      return Object.assign(parsed, { number: Number(number) });
    });
  }

  watch(onChange: () => void, { signal }: { readonly signal: AbortSignal }): void {
    const both = AbortSignal.any([signal, this.#closing.signal]);
    if (!both.aborted) this.#changes.watch(this.#issuer, this.#seen.revision, onChange, both);
  }

  async close(): Promise<void> {
    this.#closing.abort();
  }

  /** Reads what has changed, and keeps it. */
  async #read(query: Query): Promise<Snapshot> {
    const before = this.#seen;
    const [row = {}] = await query(snapshotQuery, [this.#issuer, before.revision]);
    if (row["readOnly"] === "true") {
      throw new StoreError(
        "ERR_STORE_UNAVAILABLE",
        `the store ${this.#name} can only be read, as a standby; name the primary`,
      );
    }
    const revision = Number(row["revision"] ?? 0);
    if (before.commit !== undefined && row["known"] !== before.commit) {
      throw new StoreError(
        "ERR_RECORDS_INVALID",
        `the store ${this.#name} is at revision ${revision}, and revision ${before.revision}, which it had, is no longer there: it is an older copy; put the newest one back, or restart to go on with this one`,
      );
    }
    // Another call has read in the meantime, and what changed since then is not what this one asked for.
    if (this.#seen !== before) return this.#read(query);
    this.#kept.update(jsonOf(row["records"]) as [number, string, string][], (name) => this.#damaged(name));
    if (revision !== before.revision) this.#seen = { revision, commit: row["commit"] as string };
    const seal = (row["seal"] as string | null) ?? undefined;
    const leases = jsonOf(row["leases"]) as Parameters<typeof readLease>[0][];
    return {
      revision,
      records: this.#kept.records,
      ...(seal !== undefined && { seal }),
      now: Number(row["now"]),
      leases: leases.map((lease) => readLease(lease, `the store ${this.#name}`)),
      ended: jsonOf(row["ended"]) as string[],
    };
  }

  /**
   * Runs a transaction of one issuer, alone; again where others were quicker, and where nobody knows what became of it.
   *
   * @param unknown the code of the error where that stays so
   */
  async #write<T>(
    signal: AbortSignal | undefined,
    unknown: "ERR_COMMIT_UNKNOWN" | "ERR_STORE_UNAVAILABLE",
    work: (held: Held) => Promise<T>,
  ): Promise<T> {
    let lost: CommitLost | undefined;
    const startMs = performance.now();
    for (let attempt = 1; ; attempt += 1) {
      this.#check(signal);
      try {
        return await this.#connections.transaction(async (query) => {
          const [row = {}] = await query(holdQuery, [this.#issuer]);
          const [revision, now] = [Number(row["revision"]), Number(row["now"])];
          const result = await work({ query, id: row["id"] as string, revision, now, isRepeated: lost !== undefined });
          signal?.throwIfAborted();
          return result;
        });
      } catch (error) {
        if (error instanceof CommitLost) lost = error;
        else if (lost === undefined) {
          if (!isSerialization(error) || attempt === maxAttempts) throw this.#translated(error, signal);
        }
        // What was decided while nobody else could write is certain, also of the attempts before.
        else if (error instanceof JwksdError && error.code !== "ERR_STORE_UNAVAILABLE") throw error;
      }
      if (lost !== undefined && performance.now() - startMs > this.#connections.timeoutMs * 2) {
        const message = `the answer to a commit was lost, and the store ${this.#name} cannot be asked for it; it may have been written`;
        throw new StoreError(unknown, message, { cause: postgresError(lost.cause, this.#name) });
      }
      // At random, so that those who collided do not collide again.
      await delay(Math.random() * Math.min(2 ** attempt, 500));
    }
  }

  #check(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (!this.#closing.signal.aborted) return;
    throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${this.#name} was closed; open it again`);
  }

  #translated(error: unknown, signal: AbortSignal | undefined): unknown {
    return signal?.aborted === true ? error : postgresError(error, this.#name);
  }

  #damaged(name: string): StoreError {
    return new StoreError(
      "ERR_RECORDS_INVALID",
      `${name} of the store ${this.#name} is damaged; restore the store from a backup`,
    );
  }
}

/** What the query makes, of which the values may be somebody else's. */
const jsonOf = (text: unknown): unknown => JSON.parse((text as string | null) ?? "[]");
