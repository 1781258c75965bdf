import * as jose from "jose";
import { type Fetch, type KeySetState, createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { type NextWindow, type Window, verifyByBoth, verifyWithoutPause } from "./verifier.ts";

/** What a verifier is told at its start. */
export interface VerifierSetup {
  readonly issuer: string;
  readonly audience: string;
  readonly kind: VerifierKind;
  /** From the report of an earlier verifier. */
  readonly state?: unknown;
}

/** Only the first one is expected to live through a rotation. */
export type VerifierKind = "remote" | "never refetches" | "leaves refetches to the HTTP cache";

// One script for Node, Bun, Deno and the page: where the tokens are is an argument, or where the page came from.
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
