import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { type RequestListener, type ServerResponse, createServer } from "node:http";
import { json } from "node:stream/consumers";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { listening } from "./listening.ts";
import type { VerifierSetup } from "./verifier-main.ts";
import { type RotatingOp, audience, removedBy, tokenOf } from "./verifier-op.ts";
import type { NextWindow, Report, Window } from "./verifier.ts";

export const verifierScript: string = fileURLToPath(new URL("verifier-main.ts", import.meta.url));

/** A function that verifies tokens until the last window. */
export type Verifier = (next: NextWindow) => Promise<Report>;

/**
 * Swaps keysets while a verifier verifies. A token is signed when its key is served, and a key is not removed while the verifier
 * may be verifying one of its tokens; otherwise, the swaps do not wait.
 *
 * @param from number of the provider's latest swap
 */
export async function rotate(op: RotatingOp, verifier: Verifier, swaps: number, from: number = 0): Promise<Report> {
  const changes = new EventEmitter();
  const last = from + swaps;
  let window: Window | undefined;
  let received = -Infinity;
  const until = async (condition: () => boolean): Promise<void> => {
    while (!condition()) await once(changes, "change");
  };

  const show = async (number: number): Promise<void> => {
    const tokens = await Promise.all([number, number - 1, number - 2].map((swap) => tokenOf(op, Math.max(swap, 0))));
    const refused = await Promise.all([tokenOf(op, removedBy(number)), tokenOf(op, number, number - 1)]);
    window = { number, tokens, ...(number === last && { refused }) };
    changes.emit("change");
  };
  const swapAll = async (): Promise<void> => {
    await show(from);
    for (let number = from + 1; number <= last; number += 1) {
      await until(() => received >= number - 1);
      await op.publish(number);
      await show(number);
    }
  };
  const next: NextWindow = async (after) => {
    received = after;
    changes.emit("change");
    await until(() => (window?.number ?? -Infinity) > after);
    return window as Window;
  };
  const [report] = await Promise.all([verifier(next), swapAll()]);
  return report;
}

/** Asserts what must be true for every verifier after a rotation. @returns the number of requests for the JWK Set */
export function assertLivedThrough({ requests }: RotatingOp, swaps: number, report: Report): number {
  assert.deepEqual(report.failures, {});
  // A token signed with a removed key, and a forged token.
  assert.deepEqual(report.refusals, ["ERR_TOKEN_KID_UNKNOWN", "ERR_JWS_SIGNATURE_VERIFICATION_FAILED"]);
  const seen: Record<string, number> = {};
  for (const { method, url, response } of requests) {
    const exchange = `${method} ${url} ${response.statusCode}`;
    seen[exchange] = (seen[exchange] ?? 0) + 1;
  }
  const { "GET /jwks 200": sets = 0, "GET /.well-known/openid-configuration 200": lookUps, ...others } = seen;
  assert.ok(lookUps !== undefined);
  assert.deepEqual(others, {});
  // For unknown kids, the discovery document is also fetched, at most once a minute.
  const lookedUp = requests.filter(({ url }) => url !== "/jwks").map(({ atMs }) => atMs);
  const gapsMs = lookedUp.slice(1).map((at, index) => at - (lookedUp[index] ?? at));
  assert.ok(Math.min(...gapsMs) > 59_000, `between look-ups: ${gapsMs.join()} ms`);
  // The verifier is at most one window behind, so it must have fetched at least every second set.
  // The set had not changed when the removed key was looked up.
  assert.ok(sets <= swaps + 2 && sets >= swaps / 2, `${sets} requests for ${swaps} swaps`);
  const [, ...refetches] = requests.filter(({ url }) => url === "/jwks");
  assert.ok(refetches.every(({ headers }) => headers["if-none-match"] === undefined));
  return sets;
}

export type VerifierOptions = Partial<Pick<VerifierSetup, "kind" | "state">>;

/** Creates a verifier that is a separate process. The command gets an additional argument, the URL of the tokens. */
export function processVerifier(
  t: TestContext,
  { issuer }: Pick<RotatingOp, "issuer">,
  [program, ...args]: readonly [string, ...string[]],
  options: VerifierOptions = {},
): Verifier {
  return async (next) => {
    const { origin, report } = await startControl(t, { issuer }, next, options);
    const child = spawn(program, [...args, origin], { stdio: ["ignore", "ignore", "pipe"] });
    let errors = "";
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
    const closed = once(child, "close");
    const end = async (): Promise<void> => {
      child.kill();
      await closed;
    };
    t.after(end);
    const ended = closed.then(() => Promise.reject(new Error(`${program} ended before it reported: ${errors}`)));
    return Promise.race([report, ended]).finally(end);
  };
}

function send(response: ServerResponse, type: string, body: string): void {
  response.writeHead(200, { "Content-Type": type, "Cache-Control": "no-store" }).end(body);
}

/**
 * Serves a verifier its tokens over HTTP and receives its report.
 *
 * @param script source of the page's script, for browsers
 */
export async function startControl(
  t: TestContext,
  { issuer }: Pick<RotatingOp, "issuer">,
  next: NextWindow,
  { kind = "remote", state }: VerifierOptions,
  script: string = "",
): Promise<{ readonly origin: string; readonly report: Promise<Report> }> {
  const setup: VerifierSetup = { issuer, audience, kind, state };
  const { promise: report, resolve } = Promise.withResolvers<Report>();
  const routes: Readonly<Record<string, RequestListener>> = {
    "/setup": (_, response) => send(response, "application/json", JSON.stringify(setup)),
    "/window": async ({ headers }, response) =>
      send(response, "application/json", JSON.stringify(await next(Number(headers["x-after"])))),
    "/report": async (incoming) => resolve((await json(incoming)) as Report),
    "/": (_, response) => send(response, "text/html", '<script type="module" src="/script.js"></script>'),
    "/script.js": (_, response) => send(response, "text/javascript", script),
  };
  const server = createServer((incoming, response) => {
    const route = routes[incoming.url ?? ""];
    if (route === undefined) response.writeHead(404).end();
    else route(incoming, response);
  });
  return { origin: `http://127.0.0.1:${await listening(t, server)}`, report };
}
