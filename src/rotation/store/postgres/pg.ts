import { withDeadline } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { NotSent, noResponse } from "../databases/database-calls.ts";
import { type Driver, type Row, ended } from "./driver.ts";
import { isRefusal } from "./error-details.ts";

/** The part of a `pg` pool that jwksd uses. */
export interface PostgresPool {
  connect(): Promise<PostgresClient>;
}

/** A connection from a {@link PostgresPool}. */
export interface PostgresClient {
  query(query: { readonly text: string; readonly values?: unknown[] }): Promise<{ readonly rows?: readonly unknown[] }>;
  on(event: "error" | "end", listener: () => void): unknown;
  on(event: "notification", listener: (message: { readonly payload?: string | undefined }) => void): unknown;
  removeListener(event: "error", listener: () => void): unknown;
  unref?(): void;
  release(destroy?: boolean): void;
}

const ignore = (): void => {};

function release(client: PostgresClient, isReusable: boolean): void {
  client.release(!isReusable);
  client.removeListener("error", ignore);
}

/**
 * Creates a driver for a pool. There is a deadline for connecting and for each response. `end` does not close the pool.
 */
export function pgDriver(pool: PostgresPool, name: string, timeoutMs: number): Driver {
  const deadline = { clock: systemClock, timeoutMs, expired: noResponse };

  async function connect(signal: AbortSignal | undefined): Promise<PostgresClient> {
    const connecting = pool.connect();
    try {
      const client = await withDeadline(() => connecting, { ...deadline, signal });
      // A query rejects when its connection breaks, so the event does not need to be handled.
      client.on("error", ignore);
      return client;
    } catch (error) {
      connecting.then((client) => client.release(), ignore);
      throw signal?.aborted === true ? error : new NotSent("", { cause: error });
    }
  }

  return {
    name,

    async run(text, values, signal) {
      const client = await connect(signal);
      let isReusable = false;
      try {
        // Several statements in one query return no rows.
        const { rows = [] } = await withDeadline(() => client.query({ text, values: [...values] }), {
          ...deadline,
          signal,
        });
        isReusable = true;
        return rows as readonly Row[];
      } catch (error) {
        isReusable = isRefusal(error);
        throw error;
      } finally {
        release(client, isReusable);
      }
    },

    async listen(channel, onNotification, signal) {
      const client = await connect(signal);
      client.unref?.();
      const lost = new Promise<void>((resolve) => client.on("end", resolve));
      client.on("notification", ({ payload = "" }) => onNotification(payload));
      try {
        await withDeadline(() => client.query({ text: `LISTEN ${channel}` }), deadline);
        await Promise.race([lost, ended(signal)]);
      } finally {
        release(client, false);
      }
    },

    async end() {},
  };
}
