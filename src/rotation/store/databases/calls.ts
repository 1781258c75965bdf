import { withDeadline } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { JwksdError, StoreError } from "../../../base/errors.ts";
import { type Optional, required, timeout } from "../../../base/options.ts";
import { printable } from "../../../base/printable.ts";
import { issuerRule } from "../issuer.ts";

export interface DatabaseStoreOptions {
  /** Whose keys are meant: any number of issuers may share the database. */
  readonly issuer: string;
  /** Time for one call, in milliseconds. Default: 5,000. */
  readonly timeoutMs?: Optional<number>;
}

export const databaseRules = { issuer: required(issuerRule), timeoutMs: timeout };

/** What an error of a database, or of its package, says. */
export interface Fault {
  /** Its code. */
  readonly word: string;
  /** The words of the server, which show nothing that was written. */
  readonly text?: string | undefined;
  /** What is wrong, and what to do: more than the words of the server. */
  readonly advice?: string | undefined;
  /** Whether the tables are another program's. */
  readonly isForeign?: boolean | undefined;
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
  /** An error in terms of the store, after which nothing was done. */
  unavailable(error: unknown): JwksdError;
  /** Makes all later calls reject. */
  close(): void;
}

/** Nothing was sent. */
export class NotSent extends Error {}

/** The time is over. */
export class NoAnswer extends Error {}
export const noAnswer = (): Error => new NoAnswer("no answer in time");

/** Codes of Node.js where there is no connection yet, and what to do. */
const unconnected = new Map([
  ["ECONNREFUSED", "nothing listens there; start the server, or check host and port"],
  ["ENOENT", "there is no such socket; start the server, or check the path"],
  ["ENOTFOUND", "there is no such host; check its name"],
  ["EAI_AGAIN", "the name of its host cannot be looked up now; try again"],
]);

/** What an error says that no server sent. */
export function networkFault(error: unknown): Fault {
  const thrown = error instanceof NotSent ? error.cause : error;
  const { code } = (thrown ?? {}) as { readonly code?: unknown };
  const word = typeof code === "string" ? code : "no answer in time, or the connection broke";
  return { word, advice: unconnected.get(word), isCertain: error instanceof NotSent || unconnected.has(word) };
}

export function callsTo(name: string, timeoutMs: number, faultOf: (error: unknown) => Fault): Calls {
  let isClosed = false;

  function messageOf({ word, text, advice }: Fault): string {
    const said =
      text === undefined
        ? "check that it runs and that its address is right"
        : `it says ${JSON.stringify(printable(text))}`;
    return `cannot use the store ${name} (${printable(word)}): ${advice ?? `${said}; try again`}`;
  }

  function unavailable(error: unknown): JwksdError {
    if (error instanceof JwksdError) return error;
    const fault = faultOf(error);
    return fault.isForeign === true
      ? new StoreError("ERR_STORE_FORMAT", `the tables of ${name} are another program's; use another database`)
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
        return await withDeadline(action, { clock: systemClock, timeoutMs, signal, expired: noAnswer });
      } catch (error) {
        throw signal?.aborted === true ? signal.reason : writes ? unwritten(error) : unavailable(error);
      }
    },
    close: () => void (isClosed = true),
  };
}
