import { decodeProtectedHeader } from "jose/decode/protected_header";
import { decodeJwt } from "jose/jwt/decode";
import { sleep } from "../../base/async.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import {
  type Optional,
  type Rules,
  anything,
  callback,
  checkOptions,
  clock as clockRule,
  number,
  required,
} from "../../base/options.ts";
import type { HttpExchange, SetFetch, Observations, SeenToken } from "../observations.ts";
import { field, sameBytes } from "../read-exchange.ts";
import { type TimelineEvent, changes } from "../set-changes.ts";
import { type ParsedSets, type State, stateOf } from "../set-states.ts";
import { quoted } from "../value-text.ts";
import { asking } from "./observe.ts";

/** Options for {@link watchJwkSet}. */
export interface WatchOptions {
  /** Duration of the watch, in milliseconds. */
  readonly durationMs: number;
  /**
   * Time between fetches, in milliseconds. Default: 5000; for a short watch, less; for a long watch, more, so that
   * there are at most 720 fetches.
   */
  readonly intervalMs?: Optional<number>;
  /** Source of the current time. Default: the machine's clock. */
  readonly clock?: Optional<Clock>;
  /** Fetches the set. Default: sends a GET, with the same limits as `observeIssuer`. */
  readonly ask?: Optional<() => Promise<HttpExchange>>;
  /** Returns the compact tokens that have been signed since the last call. Default: no tokens. */
  readonly tokens?: Optional<() => Promise<readonly string[]>>;
  /** Receives each timeline event. Default: none. */
  readonly onEvent?: Optional<(event: TimelineEvent) => void>;
  /** Signal that ends the watch early. The results so far are returned. Default: none. */
  readonly signal?: Optional<AbortSignal>;
}

const rules: Rules<WatchOptions> = {
  durationMs: required(number(0)),
  intervalMs: number(0),
  clock: clockRule,
  ask: callback,
  tokens: callback,
  onEvent: callback,
  signal: anything,
};

const usualIntervalMs = 5000;
const maxLooks = 720;
/**
 * Maximum total size of all distinct sets, in bytes. The limit is needed because a server might never send the same set
 * twice.
 */
const maxBytes = 50_000_000;
const maxTokens = 10_000;

export const intervalFor = (durationMs: number): number =>
  Math.max(Math.min(usualIntervalMs, durationMs / 4), durationMs / maxLooks);

/** Fetches a JWK Set repeatedly. Returns the observations, with all fetches and tokens added. */
export async function watchJwkSet(observations: Observations, options: WatchOptions): Promise<Observations> {
  const given = checkOptions(options, rules);
  const { durationMs, intervalMs = intervalFor(durationMs), clock = systemClock, onEvent, signal } = given;
  const { ask = asking(observations.set?.url ?? "") } = given;
  const laterFetches: SetFetch[] = [];
  const tokens: SeenToken[] = [...(observations.tokens ?? [])];
  const parsed: ParsedSets = new Map();
  const signers = new Set<string>();
  let last: State | undefined;
  let bytes = 0;

  const tell = (at: number, lines: readonly string[]): void => {
    for (const text of lines) onEvent?.({ at, text });
  };
  const notice = async ({ at, set }: SetFetch): Promise<void> => {
    const state = await stateOf(set, at, parsed);
    tell(at, changes(last, state));
    last = state;
  };
  if (observations.set !== undefined) await notice({ at: observations.at, set: observations.set });

  const endsAt = clock.now() + durationMs;
  while (clock.now() < endsAt && bytes < maxBytes) {
    for (const token of (await given.tokens?.()) ?? []) {
      const read = seenToken(token, clock.now());
      if (read === undefined) continue;
      if (!signers.has(read.kid)) tell(read.at, [`first token with kid ${quoted(read.kid)}`]);
      signers.add(read.kid);
      if (tokens.length < maxTokens) tokens.push(read);
    }
    await sleep(Math.min(intervalMs, endsAt - clock.now()), clock, signal).catch(() => {});
    if (signal?.aborted === true) break;
    const fetched = { at: clock.now(), set: await ask() };
    if (!isSameSet(laterFetches.at(-1), fetched)) bytes += fetched.set.body?.length ?? 0;
    await notice(fetched);
    keep(laterFetches, fetched);
  }
  if (bytes >= maxBytes) tell(clock.now(), ["the watch ended early, because it received too many different sets"]);
  return { ...observations, laterFetches, tokens };
}

/** Adds a fetch. If consecutive fetches have the same result, keeps only the first and the last. */
function keep(laterFetches: SetFetch[], fetched: SetFetch): void {
  if (isSameSet(laterFetches.at(-1), fetched) && isSameSet(laterFetches.at(-2), fetched)) laterFetches.pop();
  laterFetches.push(fetched);
}

function isSameSet(one: SetFetch | undefined, other: SetFetch): boolean {
  if (one === undefined) return false;
  const [a, b] = [one.set, other.set];
  if (a.status !== b.status || a.failure?.detail !== b.failure?.detail) return false;
  if (["etag", "cache-control"].some((name) => field(a, name) !== field(b, name))) return false;
  return a.body === b.body || sameBytes(a.body, b.body);
}

/** Reads a token's kid and times without verifying it. The rest of the token is discarded. */
export function seenToken(token: string, at: number): SeenToken | undefined {
  try {
    const { kid } = decodeProtectedHeader(token);
    const { iat, exp } = decodeJwt(token);
    if (typeof kid !== "string") return undefined;
    return { at, kid, issuedAt: milliseconds(iat), expiresAt: milliseconds(exp) };
  } catch {
    return undefined;
  }
}

const milliseconds = (seconds: unknown): number | undefined =>
  typeof seconds === "number" && Number.isFinite(seconds) ? seconds * 1000 : undefined;
