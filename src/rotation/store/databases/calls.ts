import { withDeadline } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { JwksdError, StoreError } from "../../../base/errors.ts";
import { type Optional, timeout } from "../../../base/options.ts";
import { printable } from "../../../base/printable.ts";
import { issuerRule } from "../issuer.ts";

export interface DatabaseStoreOptions {
  /** Whose keys are meant: any number of issuers may share the database. */
  readonly issuer: string;
  /** Time for one call, in milliseconds. Default: 5,000. */
  readonly timeoutMs?: Optional<number>;
}

export const databaseRules = { issuer: issuerRule, timeoutMs: timeout };

/** What an error of a database, or of its package, says. */
export interface Fault {
  /** Its code. */
  readonly word: string;
  /** The words of the server, which show nothing that was written. */
  readonly text?: string | undefined;
  /** Whether certainly nothing was written. */
  readonly isCertain: boolean;
  /** Whether this process may perhaps read, and may not write. */
  readonly isReadOnly?: boolean | undefined;
}

/** How a call is made. */
export interface Call {
  readonly signal?: AbortSignal | undefined;
  /** Whether something is to be written. */
  readonly writes: boolean;
}

/** Calls of one register. */
export interface Calls {
  /** Rejects in terms of the store. @see Register */
  run<T>(action: (signal: AbortSignal) => Promise<T>, options: Call): Promise<T>;
  /** Makes all later calls reject. */
  close(): void;
}

/** Nothing was sent. */
export class NotSent extends Error {}

/** The time is over. */
export class NoAnswer extends Error {}
const noAnswer = (): Error => new NoAnswer("no answer in time");

/** Codes of Node.js where there is no connection yet. */
const unconnected = new Set(["ECONNREFUSED", "ENOENT", "ENOTFOUND", "EAI_AGAIN"]);

/** What an error says that no server sent. */
export function networkFault(error: unknown): Fault {
  const thrown = error instanceof NotSent ? error.cause : error;
  const { code } = (thrown ?? {}) as { readonly code?: unknown };
  const word = typeof code === "string" ? code : "no answer in time, or the connection broke";
  return { word, isCertain: error instanceof NotSent || unconnected.has(word) };
}

export function callsTo(name: string, timeoutMs: number, faultOf: (error: unknown) => Fault): Calls {
  let isClosed = false;

  function inTerms(error: unknown, writes: boolean): Error {
    if (error instanceof JwksdError) return error;
    const { word, text, isCertain, isReadOnly = false } = faultOf(error);
    const why =
      text === undefined
        ? "check that it runs and that its address is right"
        : `it says ${JSON.stringify(printable(text))}`;
    const message = `cannot use the store ${name} (${word}): ${why}; try again`;
    if (writes && isReadOnly) return new StoreError("ERR_STORE_READ_ONLY", message);
    return writes && !isCertain ? new Error(message) : new StoreError("ERR_STORE_UNAVAILABLE", message);
  }

  return {
    async run(action, { signal, writes }) {
      signal?.throwIfAborted();
      if (isClosed) throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${name} was closed; open it again`);
      try {
        return await withDeadline(action, { clock: systemClock, timeoutMs, signal, expired: noAnswer });
      } catch (error) {
        throw signal?.aborted === true ? signal.reason : inTerms(error, writes);
      }
    },
    close: () => void (isClosed = true),
  };
}
