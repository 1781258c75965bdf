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
} from "./postgres-queries.ts";
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

type UnknownCode = "ERR_COMMIT_UNKNOWN" | "ERR_STORE_UNAVAILABLE";

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
    const { id, publishes, signsWith } = lease;
    const told = [publishes, JSON.stringify(signsWith), timeOf(0, forMs).forMs, serial ?? null];
    const values = [this.#issuer, id, ...told, ifRevision ?? null, this.#connections.limit];
    const renew = () => this.#connections.query(renewQuery, values);
    const [row = {}] = await this.#repeat(signal, "ERR_STORE_UNAVAILABLE", renew);
    const revision = Number(row["revision"] ?? 0);
    if (row["renewed"] === "true") return revision;
    checkRevision(revision, ifRevision ?? revision);
    throw leaseEnded(id);
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

  /** Runs a transaction of one issuer, alone. @param unknown as of {@link #repeat} */
  #write<T>(signal: AbortSignal | undefined, unknown: UnknownCode, work: (held: Held) => Promise<T>): Promise<T> {
    return this.#repeat(signal, unknown, (isRepeated) =>
      this.#connections.transaction(async (query) => {
        const [row = {}] = await query(holdQuery, [this.#issuer]);
        const [revision, now] = [Number(row["revision"]), Number(row["now"])];
        const result = await work({ query, id: row["id"] as string, revision, now, isRepeated });
        signal?.throwIfAborted();
        return result;
      }),
    );
  }

  /**
   * Writes; again where others were quicker, and where nobody knows what became of it.
   *
   * @param unknown the code of the error where that stays so
   */
  async #repeat<T>(
    signal: AbortSignal | undefined,
    unknown: UnknownCode,
    write: (isRepeated: boolean) => Promise<T>,
  ): Promise<T> {
    let lost: CommitLost | undefined;
    const startMs = performance.now();
    for (let attempt = 1; ; attempt += 1) {
      this.#check(signal);
      try {
        return await write(lost !== undefined);
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
