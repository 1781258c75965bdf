/**
 * A store in etcd, through its JSON gateway.
 *
 * @module jwksd/store/etcd
 */

import { bytesWithin, fromBase64 } from "../../../base/bytes.ts";
import { httpDate } from "../../../base/cache-control.ts";
import { jsonOf, memberOf } from "../../../base/json.ts";
import {
  type Optional,
  type Rule,
  callback,
  checkArgument,
  checkOptions,
  nonEmptyString,
  strings,
} from "../../../base/options.ts";
import { databaseUrl } from "../database-url.ts";
import { issuerKey } from "../issuer-hash.ts";
import type { ClosableRegister } from "../register.ts";
import { maxBytesOf } from "../size-limits.ts";
import {
  type Call,
  type StoreOptions,
  type Fault,
  NotSent,
  callsTo,
  databaseRules,
  networkFault,
} from "./database-calls.ts";

export interface EtcdStoreOptions extends StoreOptions {
  /**
   * Function that sends requests to the members, for example with a client certificate. Default: the global `fetch`.
   */
  readonly fetch?: Optional<typeof fetch>;
}

/** A range of keys in JSON. Except for the header, a response omits members that would be empty or zero. */
interface KeyRange {
  readonly header: object;
  readonly kvs?: readonly { readonly key: string; readonly value?: string }[];
}

/** A response in JSON. */
interface JsonResponse extends KeyRange {
  readonly succeeded?: unknown;
  /** Number of keys in a range, regardless of the limit. */
  readonly count?: string;
  readonly responses?: readonly { readonly response_range?: KeyRange }[];
  readonly token?: string;
}

const membersRule: Rule = {
  must: "the URL of a member, or an array of member URLs",
  types: ["string", "array"],
  holds: (value): value is unknown => nonEmptyString.holds(value) || (strings.holds(value) && value.length > 0),
};

/**
 * Maximum size of a response, in bytes. This is larger than any valid response that contains the document or the
 * presence records in base64.
 */
const maxResponseBytes = 4 * 2 ** 20;

/** Thrown for a response that is an error or does not come from etcd. */
class Refused extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/**
 * Creates the store for one issuer in etcd 3.4 or later, which any number of processes and issuers may share. The
 * store's clock is the responding member's clock, in whole seconds.
 *
 * @param urls `https://HOST:PORT` for at least one member, with a user and password if etcd requires them. If a member
 * does not respond, the next one is tried
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function etcdStore(urls: string | readonly string[], options: EtcdStoreOptions): ClosableRegister {
  checkArgument("the database", urls, membersRule);
  const {
    issuer,
    timeoutMs = 5_000,
    fetch = globalThis.fetch,
  } = checkOptions(options, { ...databaseRules, fetch: callback });
  const members = [urls].flat().map(parseMember);
  const name = members.map(({ base }) => base).join(",");
  // Each member gets the whole timeout.
  const calls = callsTo(name, timeoutMs * members.length, faultOf);
  let current = 0;
  let token: string | undefined;

  async function post(path: string, body: object, outer: AbortSignal): Promise<readonly [Decoded, now: number]> {
    const { base } = members[current] as Member;
    const signal = AbortSignal.any([outer, AbortSignal.timeout(timeoutMs)]);
    const headers = { "Content-Type": "application/json", ...(token !== undefined && { Authorization: token }) };
    const init: RequestInit = { method: "POST", headers, body: JSON.stringify(body), signal, redirect: "error" };
    const response = await fetch(`${base}/v3/${path}`, init).catch((error: unknown) => {
      const { cause } = error as { readonly cause?: unknown };
      throw networkFault(cause).isCertain ? new NotSent("", { cause }) : error;
    });
    const bytes = await bytesWithin(response.body, maxResponseBytes);
    if (bytes === undefined) throw new Refused(502, `the response is larger than ${maxResponseBytes} bytes`);
    const json = jsonOf(new TextDecoder().decode(bytes));
    const decoded = response.ok ? decode(json) : undefined;
    if (!decoded) throw new Refused(response.status, messageIn(json) ?? "the response is not from etcd");
    const now = httpDate(response.headers.get("Date") ?? "");
    if (now === undefined) throw new Refused(502, "the response has no valid Date header");
    return [decoded, now];
  }

  /**
   * Sends a request to a member. If there is a user, the request includes a token, which is valid for a few minutes.
   */
  async function ask(path: string, body: object, signal: AbortSignal): Promise<readonly [Decoded, now: number]> {
    const { login } = members[current] as Member;
    if (login === undefined) return post(path, body, signal);
    const renew = async (): Promise<void> => {
      token = undefined;
      token = (await post("auth/authenticate", login, signal))[0].token;
    };
    if (token === undefined) await renew();
    return post(path, body, signal).catch(async (error: unknown) => {
      const isRefused = error instanceof Refused;
      if (isRefused && error.status !== 401 && !error.message.includes("auth store is old")) throw error;
      // If a token has expired, a gateway may close the connection.
      token = undefined;
      if (!isRefused) throw error;
      await renew();
      return post(path, body, signal);
    });
  }

  const run = (options: Call, request: (prefix: string, key: string) => readonly [path: string, body: object]) =>
    calls.run(async (signal) => {
      const key = await issuerKey(issuer);
      const [path, body] = request(`jwksd/${key}/`, key);
      for (let tried = 1; ; tried += 1) {
        try {
          return await ask(path, body, signal);
        } catch (error) {
          current = (current + 1) % members.length;
          // If the data may have been written, the caller must check.
          const isSafe = !options.writes || faultOf(error).isCertain;
          if (tried === members.length || !isSafe || signal.aborted) throw error;
        }
      }
    }, options);

  return {
    name,
    // By default, a request may have up to 1.5 MB.
    maxBytes: 2 ** 20,

    // Every read is linearizable and therefore confirmed: a majority must agree on the leader.
    async read(known = "", { signal } = {}) {
      const [{ succeeded, ranges }, now] = await run({ signal, writes: false }, (prefix) => {
        const version = { request_range: { key: base64(`${prefix}version`) } };
        const text = { request_range: { key: base64(`${prefix}text`) } };
        return ["kv/txn", { compare: [versionIs(prefix, known)], success: [version], failure: [version, text] }];
      });
      if (ranges.length !== (succeeded ? 1 : 2))
        throw calls.unavailable(new Refused(502, "the response is incomplete"));
      const [version, text] = ranges.map(([pair]) => pair?.[1]);
      return { ...(version !== undefined && { version }), ...(text !== undefined && { text }), now };
    },

    async write(text, ifVersion, { signal } = {}) {
      const [{ succeeded }] = await run({ signal, writes: true }, (prefix, key) => {
        const isNew = { key: base64(`${prefix}version`), target: "CREATE", create_revision: "0" };
        const compare = [ifVersion === undefined ? isNew : versionIs(prefix, ifVersion)];
        const name = ifVersion === undefined ? [put(`${names}${key}`, issuer)] : [];
        const puts = [put(`${prefix}version`, crypto.randomUUID()), put(`${prefix}text`, text), ...name];
        return ["kv/txn", { compare, success: puts.map((request_put) => ({ request_put })) }];
      });
      return succeeded;
    },

    presence: {
      async put(id, record, { signal } = {}) {
        await run({ signal, writes: true }, (prefix) => ["kv/put", put(`${prefix}presence/${id}`, record)]);
      },
      // A response that is too large is not read completely.
      async list(limit, { signal } = {}) {
        let start = "";
        const [{ pairs, count }] = await run({ signal, writes: false }, (prefix) => {
          start = `${prefix}presence/`;
          // The end of the range is the next string after all strings with this prefix.
          return ["kv/range", { key: base64(start), range_end: base64(`${prefix}presence0`), limit: `${limit}` }];
        });
        const records = pairs.map(([key, record]) => {
          return [key.slice(start.length), record.length <= maxBytesOf.record ? record : ""] as const;
        });
        return { records: new Map(records), count };
      },
      async drop(ids, { signal } = {}) {
        // By default, a transaction may have up to 128 operations.
        for (let at = 0; at < ids.length; at += 100)
          await run({ signal, writes: true }, (prefix) => {
            const keys = ids.slice(at, at + 100).map((id) => base64(`${prefix}presence/${id}`));
            return ["kv/txn", { success: keys.map((key) => ({ request_delete_range: { key } })) }];
          });
      },
    },

    async list(limit, after, { signal } = {}) {
      // The first possible key after the given key.
      const start = after === undefined ? names : `${names}${after.key}\0`;
      const range = { key: base64(start), range_end: base64("jwksd/names0"), limit: `${limit}` };
      const [{ pairs }] = await run({ signal, writes: false }, () => ["kv/range", range]);
      return pairs.map(([key, issuer]) => ({ issuer, key: key.slice(names.length) }));
    },

    forIssuer: (other) => etcdStore(urls, { ...options, issuer: other }),

    close: async () => calls.close(),
  };
}

/** Prefix for the keys whose values are the issuers' names. */
const names = "jwksd/names/";

interface Member {
  /** URL without the user, password or trailing slash. */
  readonly base: string;
  readonly login?: { readonly name: string; readonly password: string };
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
function parseMember(text: string): Member {
  const { origin, username, password } = databaseUrl(text, /^https?:$/, "https://HOST:PORT");
  if (username === "") return { base: origin };
  return { base: origin, login: { name: decodeURIComponent(username), password: decodeURIComponent(password) } };
}

const versionIs = (prefix: string, version: string) => ({
  key: base64(`${prefix}version`),
  target: "VALUE",
  value: base64(version),
});
const put = (key: string, value: string) => ({ key: base64(key), value: base64(value) });

function base64(text: string): string {
  const bytes = new TextEncoder().encode(text);
  let binary = "";
  // Converted in chunks, because a function cannot take one argument for each byte.
  for (let at = 0; at < bytes.length; at += 8_192) binary += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return btoa(binary);
}

/** Decodes the keys and values of a range. @throws Error if the range is malformed */
function pairsIn({ header, kvs = [] }: KeyRange): (readonly [key: string, value: string])[] {
  if (Object(header) !== header) throw new Error("no header");
  return kvs.map(({ key, value = "" }) => [textOf(key), textOf(value)]);
}

function textOf(value: unknown): string {
  if (typeof value !== "string") throw new Error("not base64");
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(fromBase64(value));
}

type Decoded = NonNullable<ReturnType<typeof decode>>;

/** Decodes a response. Returns `undefined` if the response is not from etcd. */
function decode(json: unknown) {
  try {
    const { succeeded = false, count = "0", responses = [], token, ...range } = json as JsonResponse;
    const ranges = responses.flatMap(({ response_range: found }) => (found === undefined ? [] : [pairsIn(found)]));
    return { succeeded: succeeded === true, count: Number(count), ranges, token, pairs: pairsIn(range) };
  } catch {
    return undefined;
  }
}

/** Returns an error response's message. Since etcd 3.6, such responses have no `error` member. */
const messageIn = (json: unknown): string | undefined =>
  ["message", "error"]
    .map((name) => memberOf(json, name))
    .find((member): member is string => typeof member === "string" && member !== "");

/**
 * Response statuses that mean that nothing was changed, because the request was invalid, was not allowed, or exceeded a
 * limit.
 *
 * @see https://grpc.io/docs/guides/status-codes/
 */
const refusals = new Set([400, 401, 403, 404, 429]);

function faultOf(error: unknown): Fault {
  if (!(error instanceof Refused)) return networkFault(error);
  const { status, message } = error;
  return { code: `${status}`, text: message, isCertain: refusals.has(status), isReadOnly: status === 403 };
}
