import * as jose from "jose";
import { type Fetch, type KeySetState, createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { type NextWindow, type Window, verifyByBoth, verifyWithoutPause } from "./verifier.ts";

/** The configuration of a verifier. */
export interface VerifierSetup {
  readonly issuer: string;
  readonly audience: string;
  readonly kind: VerifierKind;
  /** State from an earlier verifier's report. */
  readonly state?: unknown;
}

/** Kinds of key sets, of which only the first one is expected to survive a rotation. */
export type VerifierKind = "remote" | "never refetches" | "leaves refetches to the HTTP cache";

// One script for Node.js, Bun, Deno and the page. The URL of the tokens is an argument, or the page's origin.
const control = (globalThis as { location?: { readonly origin: string } }).location?.origin ?? process.argv[2];

const get = async <T>(url: string, headers = {}): Promise<T> => (await fetch(url, { headers })).json() as Promise<T>;
const next: NextWindow = (after) => get<Window>(`${control}/window`, { "X-After": String(after) });

const { issuer, audience, kind, state } = await get<VerifierSetup>(`${control}/setup`);
const byHttpCache: Fetch = (url, init) => fetch(url, { ...init, cache: "default" });
const remote = createRemoteKeySet({
  issuer,
  state: state as KeySetState | undefined,
  fetch: kind === "leaves refetches to the HTTP cache" ? byHttpCache : undefined,
});
const keys = kind === "never refetches" ? jose.createLocalJWKSet(await get(`${issuer}/jwks`)) : remote;

const report = await verifyWithoutPause(next, (token) => verifyByBoth(token, keys, { issuer, audience }));
await fetch(`${control}/report`, { method: "POST", body: JSON.stringify({ ...report, state: remote.state() }) });
