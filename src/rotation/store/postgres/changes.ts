import type { Connections, Line } from "./driver.ts";

const pollMs = 1_000;

/** The revisions of all issuers in one number each, so that the answer is as short for ten thousand as for one. */
const fingerprintQuery = `SELECT concat_ws(' ', count(*), sum(revision), sum(revision * id)) AS fingerprint,
  pg_is_in_recovery()::text AS standby FROM jwksd.issuers`;
const revisionsQuery = "SELECT issuer, revision::text AS revision FROM jwksd.issuers WHERE issuer = ANY($1)";

/**
 * Tells of commits to all issuers over one connection: by one query a second, and at once after a notification. Notifications need not
 * come: PgBouncer in transaction mode delivers none.
 */
export class Changes {
  readonly #connections: Connections;
  readonly #watchers = new Map<string, Set<() => void>>();
  /** The revision that the watchers of each issuer know. */
  readonly #told = new Map<string, number>();
  /** Issuers that were not looked at yet. */
  readonly #isNew = new Set<string>();
  #fingerprint: unknown;
  /** How often somebody began to watch. */
  #joined = 0;
  #line: Line | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isPolling = false;
  #isPoked = false;
  /** Whether the watchers know that the database cannot be asked. */
  #isLost = false;

  constructor(connections: Connections) {
    this.#connections = connections;
  }

  /** @param known the revision that the watcher has loaded, or 0 */
  watch(issuer: string, known: number, onChange: () => void, signal: AbortSignal): void {
    const isFirst = this.#watchers.size === 0;
    const watchers = this.#watchers.get(issuer) ?? new Set();
    this.#watchers.set(issuer, watchers);
    this.#joined += 1;
    if (!this.#told.has(issuer)) {
      this.#told.set(issuer, known);
      this.#isNew.add(issuer);
    }
    const notify = (): void => onChange();
    watchers.add(notify);
    const leave = (): void => {
      watchers.delete(notify);
      if (watchers.size === 0 && this.#watchers.get(issuer) === watchers) {
        this.#watchers.delete(issuer);
        this.#told.delete(issuer);
        this.#isNew.delete(issuer);
      }
      if (this.#watchers.size === 0) this.#stop();
    };
    signal.addEventListener("abort", leave, { once: true });
    if (isFirst) {
      this.#timer = setInterval(() => this.poke(), pollMs).unref();
      this.poke();
    }
  }

  /** Notes the revision that a new watcher has loaded, so that nothing is told about this revision. */
  loaded(issuer: string, revision: number): void {
    if (this.#isNew.has(issuer)) this.#told.set(issuer, revision);
  }

  /** After a commit of this process. Nothing waits for the notification: where none arrives, the other processes poll. */
  announce(): void {
    this.poke();
    this.#connections.query("NOTIFY jwksd").catch(() => {});
  }

  /** Looks now. */
  poke(): void {
    if (this.#isPolling) this.#isPoked = true;
    else if (this.#watchers.size > 0) void this.#poll();
  }

  close(): void {
    this.#watchers.clear();
    this.#stop();
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#line?.close();
    this.#line = undefined;
    this.#told.clear();
    this.#isNew.clear();
    this.#fingerprint = undefined;
  }

  async #poll(): Promise<void> {
    this.#isPolling = true;
    try {
      do {
        this.#isPoked = false;
        await this.#look();
      } while (this.#isPoked && this.#watchers.size > 0);
      this.#isLost = false;
    } catch {
      this.#line?.close();
      this.#line = undefined;
      // The watchers find the fault when they load, and the fault may be over when there is a connection again.
      this.#fingerprint = undefined;
      if (!this.#isLost) this.#tell([...this.#watchers.keys()]);
      this.#isLost = true;
    } finally {
      this.#isPolling = false;
    }
  }

  async #look(): Promise<void> {
    this.#line ??= await this.#open();
    const { query } = this.#line;
    const [row] = await query(fingerprintQuery);
    if (row?.["standby"] === "true") throw new Error("it has become a standby");
    const fingerprint = `${this.#joined} ${String(row?.["fingerprint"])}`;
    if (fingerprint === this.#fingerprint && !this.#isLost) return;
    const issuers = [...this.#watchers.keys()];
    const rows = await query(revisionsQuery, [issuers]);
    const found = new Map(rows.map(({ issuer, revision }) => [issuer as string, Number(revision)]));
    const changed = issuers.filter((issuer) => {
      const [before, now] = [this.#told.get(issuer), found.get(issuer) ?? 0];
      this.#told.set(issuer, now);
      this.#isNew.delete(issuer);
      return this.#isLost || (before ?? now) !== now;
    });
    this.#fingerprint = fingerprint;
    this.#tell(changed);
  }

  async #open(): Promise<Line> {
    const line = await this.#connections.line();
    line.onNotification(() => this.poke());
    line.onEnd(() => {
      if (this.#line === line) this.poke();
    });
    // Where there are no notifications, the poll finds the commits.
    await line.query("LISTEN jwksd").catch(() => {});
    return line;
  }

  #tell(issuers: readonly string[]): void {
    for (const issuer of issuers) for (const notify of this.#watchers.get(issuer) ?? []) notify();
  }
}
