import { withDeadline } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { NotSent, noResponse } from "../databases/database-calls.ts";
import { type Driver, type Row, ended } from "./driver.ts";

/** The part of a `postgres` instance that jwksd uses. */
export interface PostgresSql {
  unsafe(text: string, values?: (string | null)[]): PromiseLike<readonly unknown[]>;
  listen(channel: string, onNotification: (payload: string) => void): Promise<{ unlisten(): Promise<unknown> }>;
}

/**
 * Codes of errors that occur before a connection is established: the package's codes, Node's codes, and SQLSTATEs from
 * a server that does not accept connections.
 */
const unconnected =
  /^(CONNECT_TIMEOUT|CONNECTION_ENDED|ECONNREFUSED|ENOENT|ENOTFOUND|EAI_AGAIN|28...|3D000|53300|57P03)$/;

/** Creates a driver for the caller's instance, which `end` does not close. */
export function postgresJsDriver(sql: PostgresSql, timeoutMs: number): Driver {
  return {
    name: "in PostgreSQL",

    run: (text, values, signal) =>
      withDeadline(
        async () => {
          try {
            return (await sql.unsafe(text, [...values])) as readonly Row[];
          } catch (error) {
            const { code = "" } = error as { readonly code?: string };
            throw unconnected.test(code) ? new NotSent("", { cause: error }) : error;
          }
        },
        { clock: systemClock, timeoutMs, signal, expired: noResponse },
      ),

    async listen(channel, onNotification, signal) {
      const listening = await sql.listen(channel, onNotification);
      await ended(signal);
      await listening.unlisten();
    },

    async end() {},
  };
}
