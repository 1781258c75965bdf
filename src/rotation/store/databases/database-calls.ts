import { withDeadline } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { JwksdError, StoreError } from "../../../base/errors.ts";
import { type Optional, required, timeout } from "../../../base/options.ts";
import { printable } from "../../../base/printable.ts";
import { issuerRule } from "../issuer-hash.ts";

export interface StoreOptions {
  /** Issuer whose keys are stored. Any number of issuers may share the database. */
  readonly issuer: string;
  /** Timeout for each call, in milliseconds. Default: 5,000. */
  readonly timeoutMs?: Optional<number>;
}

export const databaseRules = { issuer: required(issuerRule), timeoutMs: timeout };

/** Details about an error from a database or its package. */
export interface Fault {
  /** The error's code, or a short description. */
  readonly code: string;
  /** The server's message. It contains none of the data that was being written. */
  readonly text?: string | undefined;
  /** Cause and remedy. Error messages contain these instead of the server's message. */
  readonly advice?: string | undefined;
  /** Whether the tables belong to another program. */
  readonly isForeign?: boolean | undefined;
  /** Whether it is certain that nothing was written. */
  readonly isCertain: boolean;
  /** Whether this process cannot write, although it may be able to read. */
  readonly isReadOnly?: boolean | undefined;
}

/** Options for a call. */
export interface Call {
  readonly signal?: AbortSignal | undefined;
  /** Whether the call writes to the database. */
  readonly writes: boolean;
}

/** Makes the calls for one register. */
export interface Calls {
  /** Runs a call. Rejects with the same errors as the methods of {@link Register}. */
  run<T>(action: (signal: AbortSignal) => Promise<T>, options: Call): Promise<T>;
  /** Wraps an error when it is certain that nothing was written. */
  unavailable(error: unknown): JwksdError;
  /** Makes all later calls reject. */
  close(): void;
}

/** Thrown if a call was not sent. */
export class NotSent extends Error {}

/** Thrown if a call timed out. */
export class NoResponse extends Error {}
export const noResponse = (): Error => new NoResponse("no response in time");

/** Advice for Node.js errors that occur before a connection is established, keyed by error code. */
const unconnected = new Map([
  ["ECONNREFUSED", "no server is listening on this host and port; start the server, or correct the address"],
  ["ENOENT", "the socket does not exist; start the server, or check the path"],
  ["ENOTFOUND", "the host does not exist; check its name"],
  ["EAI_AGAIN", "the host name cannot be resolved at the moment; try again later"],
]);

/** Returns details about an error that did not come from a server. */
export function networkFault(error: unknown): Fault {
  const thrown = error instanceof NotSent ? error.cause : error;
  const { code: given } = (thrown ?? {}) as { readonly code?: unknown };
  const code = typeof given === "string" ? given : "no response in time, or the connection was lost";
  return { code, advice: unconnected.get(code), isCertain: error instanceof NotSent || unconnected.has(code) };
}

export function callsTo(name: string, timeoutMs: number, faultOf: (error: unknown) => Fault): Calls {
  let isClosed = false;

  function messageOf({ code, text, advice }: Fault): string {
    const detail =
      text === undefined
        ? "check that it is running and that its address is correct"
        : `it reports ${JSON.stringify(printable(text))}`;
    return `cannot use the store ${name} (${printable(code)}): ${advice ?? `${detail}; try again`}`;
  }

  function unavailable(error: unknown): JwksdError {
    if (error instanceof JwksdError) return error;
    const fault = faultOf(error);
    return fault.isForeign === true
      ? new StoreError("ERR_STORE_FORMAT", `the tables in ${name} belong to another program; use another database`)
      : new StoreError("ERR_STORE_UNAVAILABLE", messageOf(fault));
  }

  function unwritten(error: unknown): Error {
    if (error instanceof JwksdError) return error;
    const fault = faultOf(error);
    if (fault.isReadOnly === true) return new StoreError("ERR_STORE_READ_ONLY", messageOf(fault));
    return fault.isCertain ? unavailable(error) : new Error(messageOf(fault));
  }

  return {
    unavailable,
    async run(action, { signal, writes }) {
      signal?.throwIfAborted();
      if (isClosed) throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${name} was closed; open it again`);
      try {
        return await withDeadline(action, { clock: systemClock, timeoutMs, signal, expired: noResponse });
      } catch (error) {
        throw signal?.aborted === true ? signal.reason : writes ? unwritten(error) : unavailable(error);
      }
    },
    close: () => void (isClosed = true),
  };
}
