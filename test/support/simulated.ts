import { createHash } from "node:crypto";
import type { Clock } from "../../src/base/clock.ts";
import { type NamedKey, named, withoutPrivate } from "./keys.ts";

/** A clock that advances only when a test advances it. */
export interface SimulatedClock extends Clock {
  /** Advances time: timers fire one by one, each with all of its effects. */
  advance(ms: number): Promise<void>;
  /** Sets the clock, as an administrator does: `now` jumps, but timers are unaffected. */
  setBy(ms: number): void;
  /** Number of timers that are set. */
  readonly timers: number;
  /** Forgets all timers, as workerd does when the request that set them has been answered. */
  loseTimers(): void;
}

export function simulatedClock(): SimulatedClock {
  const timers = new Set<{ readonly dueMs: number; readonly callback: () => void }>();
  const dueFirst = () => {
    const firstMs = Math.min(...Array.from(timers, ({ dueMs }) => dueMs));
    return [...timers].find(({ dueMs }) => dueMs === firstMs);
  };
  let elapsedMs = 0;
  let startMs = Date.parse("2026-11-20T12:00:00Z");
  return {
    now: () => startMs + elapsedMs,
    monotonic: () => elapsedMs,
    setTimer(callback, delayMs) {
      const timer = { dueMs: elapsedMs + delayMs, callback };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    async advance(ms) {
      await settled();
      const endMs = elapsedMs + ms;
      for (;;) {
        const due = dueFirst();
        if (due === undefined || due.dueMs > endMs) break;
        timers.delete(due);
        elapsedMs = Math.max(elapsedMs, due.dueMs);
        due.callback();
        await settled();
      }
      elapsedMs = endMs;
    },
    setBy(ms) {
      startMs += ms;
    },
    get timers() {
      return timers.size;
    },
    loseTimers() {
      timers.clear();
    },
  };
}

/** Waits until everything that needs no timer has happened. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
}

/** A request that reached the origin. */
export interface SeenRequest {
  readonly url: string;
  readonly atMs: number;
  /** Header fields by lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
  readonly init: RequestInit;
}

/** A function that responds for an origin. */
export type Script = (request: SeenRequest, clock: Clock) => Response | Promise<Response>;

/** An origin inside this process: its `fetch` records each request and responds with the current script. */
export interface ScriptedOrigin {
  readonly requests: SeenRequest[];
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
  script: Script;
}

export function scriptedOrigin(clock: Clock, script: Script): ScriptedOrigin {
  const requests: SeenRequest[] = [];
  const origin: ScriptedOrigin = {
    requests,
    script,
    async fetch(url, init) {
      const request = { url, atMs: clock.now(), headers: Object.fromEntries(new Headers(init.headers)), init };
      requests.push(request);
      return origin.script(request, clock);
    },
  };
  return origin;
}

type HeaderFields = Readonly<Record<string, string>>;

export const reply =
  (status: number, body: ConstructorParameters<typeof Response>[0] = null, headers: HeaderFields = {}): Script =>
  () =>
    new Response(body, { status, headers });

/** Responds with a body and the media type of a JWK Set. */
export const jwkSetReply = (body: ConstructorParameters<typeof Response>[0], headers: HeaderFields = {}): Script =>
  reply(200, body, { "Content-Type": "application/jwk-set+json", ...headers });

/** Responds with a JWK Set and its ETag, or with 304 if the request has that ETag. */
export function servedSet(jwks: readonly unknown[], headers: HeaderFields = {}): Script {
  const body = JSON.stringify({ keys: jwks });
  const etag = `"${createHash("sha256").update(body).digest("hex")}"`;
  const fields = new Headers({ ETag: etag, "Content-Type": "application/jwk-set+json" });
  for (const [name, value] of Object.entries(headers)) fields.set(name, value);
  return (request) =>
    request.headers["if-none-match"] === fields.get("etag")
      ? new Response(null, { status: 304, headers: fields })
      : new Response(body, { status: 200, headers: fields });
}

/** Responds with a set of these kids. */
export const served = (kids: readonly string[], headers?: HeaderFields): Script => servedSet(kids.map(entry), headers);

/** Returns the entry for a kid, as a provider publishes it. */
export const entry = (kid: string): Record<string, unknown> => entryOf(named(kid));

export function entryOf(key: NamedKey, more: object = { alg: "ES256", use: "sig" }): Record<string, unknown> {
  return { ...withoutPrivate(key), ...more };
}

/** Fails like a refused connection. */
export const unreachable: Script = () =>
  Promise.reject(new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } }));

/** Never responds and ignores the signal. */
export const hanging: Script = () => new Promise(() => {});

/** Delays a response. */
export const delayed =
  (delayMs: number, script: Script): Script =>
  async (request, clock) => {
    const response = await script(request, clock);
    await new Promise<void>((resolve) => clock.setTimer(resolve, delayMs));
    return response;
  };

/** Responds with one script per URL, and with 404 for other URLs. */
export const routed =
  (routes: Readonly<Record<string, Script>>): Script =>
  (request, clock) =>
    (routes[request.url] ?? reply(404))(request, clock);
