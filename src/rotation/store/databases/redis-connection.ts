import { importFailure } from "../../../base/optional-package.ts";
import { databaseUrl } from "../database-url.ts";
import { type Fault, NoResponse, NotSent, networkFault } from "./database-calls.ts";

/** The part of a `redis` client that jwksd uses. */
export interface RedisClient {
  sendCommand(command: string[]): Promise<unknown>;
}

/** The part of an `ioredis` client that jwksd uses. */
export interface IoredisClient {
  call(command: string, ...values: string[]): Promise<unknown>;
}

/** A connection to the server. */
interface Connection {
  readonly name: string;
  readonly send: (command: string[], signal: AbortSignal) => Promise<unknown>;
  readonly end: () => void;
}

/**
 * Returns a connection to a server, or wraps the caller's client as a connection.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function connectionTo(database: string | RedisClient | IoredisClient, timeoutMs: number): Connection {
  if (typeof database === "string") return urlConnection(database, timeoutMs);
  // An ioredis client also has a sendCommand, with other arguments.
  const send =
    "call" in database
      ? ([command = "", ...values]: string[]) => database.call(command, ...values)
      : (command: string[]) => database.sendCommand(command);
  return { name: "in Redis", send, end: () => {} };
}

/** @throws ConfigError `ERR_PACKAGE_MISSING` */
async function loadDriver() {
  try {
    return await import("redis");
  } catch (error) {
    throw importFailure("redis", error);
  }
}

type Driver = Awaited<ReturnType<typeof loadDriver>>;

/** Creates a connection that is opened by the first call. After a failure, the next call reopens it. */
function urlConnection(url: string, timeoutMs: number): Connection {
  const { protocol, host, pathname } = databaseUrl(url, /^rediss?:$/, "redis://USER@HOST:PORT/NUMBER");
  type Client = ReturnType<typeof newClient>;
  const newClient = ({ createClient }: Driver) =>
    createClient({ url, socket: { connectTimeout: timeoutMs, reconnectStrategy: false } });
  let current: { readonly client: Client; readonly connected: Promise<Client> } | undefined;

  /** Discards a client; the next call then connects again. */
  const leave = (client: Client): void => {
    if (current?.client === client) current = undefined;
    if (client.isOpen) client.destroy();
  };
  function connect(driver: Driver): NonNullable<typeof current> {
    const client = newClient(driver);
    client.on("error", () => leave(client));
    const connected = client.connect().catch((cause: unknown) => {
      leave(client);
      throw new NotSent("", { cause });
    });
    return { client, connected };
  }

  return {
    name: `${protocol}//${host}${pathname}`,
    async send(command, signal) {
      const driver = await loadDriver();
      const client = await (current ??= connect(driver)).connected;
      // Without this, a connection that no longer responds would remain in use.
      const onAbort = (): void => void (signal.reason instanceof NoResponse && leave(client));
      signal.addEventListener("abort", onAbort, { once: true });
      try {
        return await client.sendCommand(command);
      } catch (error) {
        if (isReplaced(error as Error)) leave(client);
        throw error;
      } finally {
        signal.removeEventListener("abort", onAbort);
      }
    },
    end: () => void current?.connected.then(leave, () => {}),
  };
}

/**
 * Reports whether a server refuses writes because it was demoted or cut off. If so, its address may point to a
 * different server by now.
 */
const isReplaced = ({ message }: Error): boolean => /READONLY|NOREPLICAS|MASTERDOWN/.test(message);

/**
 * Errors from a replica, or for a user without permission. If a script lacks permission, Redis 7.0 reports the code
 * `ERR`.
 */
const readOnly = /READONLY|NOPERM|The user executing the script can't/;

/**
 * Returns details about a server's error, which begins with a code in capitals. Nothing was written before the error,
 * because writing is the last thing that a script does.
 */
export function faultOf(error: unknown): Fault {
  const { message } = (error instanceof NotSent ? error.cause : error) as Error;
  const [, code] = /^([A-Z]{2,}) /.exec(message) ?? [];
  if (code === undefined) return networkFault(error);
  return { code, text: message, isCertain: true, isReadOnly: readOnly.test(message) };
}
