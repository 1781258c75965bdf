import { lifetimeOf } from "./cache-lifetime.ts";
import { decodeKey, maxKeys } from "./decode-key.ts";
import { entriesIn, isObject, readJson } from "./lenient-json.ts";
import type { HttpExchange, Observations } from "./observations.ts";
import { field } from "./read-exchange.ts";

/** The set in one response. */
export interface State {
  /** Time of the response, in epoch milliseconds. */
  readonly at: number;
  /** Thumbprints by kid. `undefined` if the response does not contain a set. */
  readonly keys: ReadonlyMap<string, string | undefined> | undefined;
  /** The document. */
  readonly content: string;
  /** String that is equal for sets with the same keys, regardless of order and format. */
  readonly identity: string;
  readonly etag: string | undefined;
  /** Time for which caches may serve this response, in seconds. */
  readonly servedSeconds: number;
  /** The reason the response does not contain a set. */
  readonly problem: string | undefined;
}

/** Parsed sets by document. Each document is parsed only once. */
export type ParsedSets = Map<string, ReadonlyMap<string, string | undefined> | undefined>;

/**
 * Returns the states in order: those from the first request, from the probes that received a complete set, and from the
 * later fetches.
 */
export async function statesOf({ at, set, probes = {}, laterFetches = [] }: Observations): Promise<readonly State[]> {
  const { again, json, origin, noAgent } = probes;
  const first = [set, again, json, origin, noAgent].filter(
    (exchange): exchange is HttpExchange => exchange?.body !== undefined && exchange.status === 200,
  );
  const parsed: ParsedSets = new Map();
  const states: State[] = [];
  for (const exchange of first) states.push(await stateOf(exchange, at, parsed));
  for (const fetched of laterFetches) states.push(await stateOf(fetched.set, fetched.at, parsed));
  return states;
}

/** Returns the state that a response shows. */
export async function stateOf(exchange: HttpExchange, at: number, parsed: ParsedSets): Promise<State> {
  const { status, body, failure } = exchange;
  const isWhole = status === 200 && body !== undefined;
  const content = isWhole ? new TextDecoder().decode(body) : "";
  if (!parsed.has(content)) parsed.set(content, isWhole ? await keysIn(body) : undefined);
  const keys = parsed.get(content);
  return {
    at,
    keys,
    content,
    identity: keys === undefined ? "" : JSON.stringify([...keys].sort(([one], [other]) => (one < other ? -1 : 1))),
    etag: field(exchange, "etag"),
    servedSeconds: lifetimeOf(exchange).servedSeconds ?? 0,
    problem: isWhole ? undefined : (failure?.detail ?? `status ${status}`),
  };
}

async function keysIn(body: Uint8Array): Promise<ReadonlyMap<string, string | undefined> | undefined> {
  const { value } = readJson(body, "");
  const entries = entriesIn(value);
  if (entries === undefined) return undefined;
  const keys = new Map<string, string | undefined>();
  for (const [index, jwk] of entries.slice(0, maxKeys).entries()) {
    if (isObject(jwk) && typeof jwk["kid"] === "string") keys.set(jwk["kid"], (await decodeKey(jwk, index)).thumbprint);
  }
  return keys;
}
