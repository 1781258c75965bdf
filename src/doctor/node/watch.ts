import { decodeJwt, decodeProtectedHeader } from "jose";
import type { Clock } from "../../clock.ts";
import { field, sameBytes } from "../exchange.ts";
import type { Exchange, Look, Observations, SeenToken } from "../observations.ts";
import { type Seen, type State, stateOf } from "../sequence.ts";
import { type Happening, changes } from "../timeline.ts";
import { shown } from "../format.ts";

/** Options of {@link watch}. */
export interface WatchOptions {
  /** How long, in milliseconds. */
  readonly durationMs: number;
  /** From look to look, in milliseconds. Default: 5000; less in a short watch, and so much in a long one that there are 720 looks. */
  readonly intervalMs?: number | undefined;
  readonly clock: Clock;
  /** Gets the set. */
  readonly ask: () => Promise<Exchange>;
  /** Gives the tokens that were signed since it was asked before, in the compact form. */
  readonly tokens?: (() => Promise<readonly string[]>) | undefined;
  /** Hears of everything as it happens. */
  readonly onHappening?: ((happening: Happening) => void) | undefined;
  /** Ends the watch; what was seen so far counts. */
  readonly signal?: AbortSignal | undefined;
}

const usualIntervalMs = 5000;
const maxLooks = 720;
/** Of all sets that differ; after so much a server is only playing. */
const maxBytes = 50_000_000;
const maxTokens = 10_000;

export const intervalFor = (durationMs: number): number =>
  Math.max(Math.min(usualIntervalMs, durationMs / 4), durationMs / maxLooks);

/** Looks at a JWK Set again and again, and gives the observations with what was seen. */
export async function watch(observations: Observations, options: WatchOptions): Promise<Observations> {
  const { durationMs, intervalMs = intervalFor(durationMs), clock, ask, onHappening, signal } = options;
  const looks: Look[] = [];
  const tokens: SeenToken[] = [...(observations.tokens ?? [])];
  const seen: Seen = new Map();
  const signers = new Set<string>();
  let last: State | undefined;
  let bytes = 0;

  const tell = (at: number, texts: readonly string[]): void => {
    for (const text of texts) onHappening?.({ at, text });
  };
  const notice = async ({ at, set }: Look): Promise<void> => {
    const state = await stateOf(set, at, seen);
    tell(at, changes(last, state));
    last = state;
  };
  if (observations.set !== undefined) await notice({ at: observations.at, set: observations.set });

  const endsAt = clock.now() + durationMs;
  while (clock.now() < endsAt && bytes < maxBytes) {
    for (const token of (await options.tokens?.()) ?? []) {
      const read = readToken(token, clock.now());
      if (read === undefined) continue;
      if (!signers.has(read.kid)) tell(read.at, [`first token of kid ${shown(read.kid)}`]);
      signers.add(read.kid);
      if (tokens.length < maxTokens) tokens.push(read);
    }
    await pause(clock, Math.min(intervalMs, endsAt - clock.now()), signal);
    if (signal?.aborted === true) break;
    const look = { at: clock.now(), set: await ask() };
    if (!isSame(looks.at(-1), look)) bytes += look.set.body?.length ?? 0;
    await notice(look);
    keep(looks, look);
  }
  if (bytes >= maxBytes) tell(clock.now(), ["the watch has ended: the sets that it got are too many"]);
  return { ...observations, looks, tokens };
}

/** Of looks that show the same, the first and the last one say it all. */
function keep(looks: Look[], look: Look): void {
  if (isSame(looks.at(-1), look) && isSame(looks.at(-2), look)) looks.pop();
  looks.push(look);
}

function isSame(one: Look | undefined, other: Look): boolean {
  if (one === undefined) return false;
  const [a, b] = [one.set, other.set];
  if (a.status !== b.status || a.failure?.detail !== b.failure?.detail) return false;
  if (["etag", "cache-control"].some((name) => field(a, name) !== field(b, name))) return false;
  return a.body === b.body || sameBytes(a.body, b.body);
}

function pause(clock: Clock, delayMs: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      cancel();
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const cancel = clock.setTimer(end, delayMs);
    signal?.addEventListener("abort", end, { once: true });
    if (signal?.aborted === true) end();
  });
}

/** What a token says of its key and its time; nothing of it is verified, or kept beside this. */
function readToken(token: string, at: number): SeenToken | undefined {
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
