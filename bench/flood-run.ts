// Runs one contestant of the flood on a simulated clock: `node flood-run.ts NAME PHASE_SECONDS` prints a FloodResult.

import { mock } from "node:test";
import { JwtVerifier } from "aws-jwt-verify";
import { SimpleJwksCache } from "aws-jwt-verify/jwk";
import buildGetJwks from "get-jwks";
import { createRemoteJWKSet } from "jose";
import jwksClient from "jwks-rsa";
import { createProvider, localSigner } from "../src/index.ts";
import { createRemoteKeySet } from "../src/verify/relying-party/index.ts";

export interface FloodResult {
  readonly name: string;
  /** Number of fetches in ten minutes. */
  readonly fetches: number;
  /** Number of valid tokens in the two minutes after the rotation; `refused` counts those that were refused. */
  readonly valid: number;
  readonly refused: number;
}

/** Finds the key with a kid, or rejects. */
type FindKey = (kid: string) => unknown;

const issuer = "https://op.example";
const jwksUri = `${issuer}/jwks`;

/** Contestants with their defaults, and with the rate limit in their documentation if it has one. */
export const contestants: Readonly<Record<string, () => FindKey>> = {
  jwksd: () => {
    const keys = createRemoteKeySet({ jwksUri });
    return (kid) => keys({ alg: "ES256", kid });
  },
  jose: () => {
    const keys = createRemoteJWKSet(new URL(jwksUri));
    return (kid) => keys({ alg: "ES256", kid }, { payload: "", signature: "" });
  },
  "jwks-rsa": () => {
    const keys = jwksClient({
      jwksUri,
      fetcher: async (uri) => (await fetch(uri)).json() as Promise<{ keys: object }>,
    });
    return (kid) => keys.getSigningKey(kid);
  },
  "jwks-rsa, rateLimit": () => {
    const keys = jwksClient({
      jwksUri,
      rateLimit: true,
      fetcher: async (uri) => (await fetch(uri)).json() as Promise<{ keys: object }>,
    });
    return (kid) => keys.getSigningKey(kid);
  },
  "get-jwks": () => {
    const keys = buildGetJwks({ jwksPath: "jwks" });
    return (kid) => keys.getPublicKey({ domain: issuer, alg: "ES256", kid });
  },
  "aws-jwt-verify": () => {
    const jwksCache = new SimpleJwksCache({ fetcher: { fetch: async (uri) => (await fetch(uri)).arrayBuffer() } });
    JwtVerifier.create({ issuer, audience: null, jwksUri }, { jwksCache });
    return (kid) => jwksCache.getJwk(jwksUri, { header: { alg: "ES256", kid }, payload: {} });
  },
};

const tickMs = 20;
const minuteMs = 60_000;
const lengthMs = 10 * minuteMs;

if (import.meta.main)
  console.log(JSON.stringify(await run(process.argv[2] ?? "", 5 * minuteMs + Number(process.argv[3]) * 1000)));

async function run(name: string, rotationMs: number): Promise<FloodResult> {
  const [before, after] = await Promise.all([entry("before"), entry("after")]);
  const provider = await createProvider({ issuer, keyset: [before] });
  let fetches = 0;
  globalThis.fetch = async (input, init) => {
    fetches += 1;
    return provider.fetch(new Request(input, init));
  };
  const settle = realSettle();
  mock.timers.enable({ apis: ["Date", "setTimeout", "setInterval"], now: Date.now() });
  let elapsedMs = 0;
  // Some packages read the time from performance.now() or process.hrtime().
  const start = performance.now();
  performance.now = () => start + elapsedMs;
  const hrStart = process.hrtime();
  process.hrtime = Object.assign(
    (since: [number, number] = [0, 0]): [number, number] => {
      const now = hrStart[0] * 1e9 + hrStart[1] + elapsedMs * 1e6 - (since[0] * 1e9 + since[1]);
      return [Math.floor(now / 1e9), now % 1e9];
    },
    { bigint: () => BigInt(hrStart[0] * 1e9 + hrStart[1] + elapsedMs * 1e6) },
  );

  const findKey = contestants[name]?.();
  if (findKey === undefined) throw new Error(`there is no contestant "${name}"`);
  let valid = 0;
  let refused = 0;
  const pending: Promise<void>[] = [];
  await findKey("before");
  for (let tick = 0; elapsedMs < lengthMs; tick += 1) {
    elapsedMs += tickMs;
    mock.timers.tick(tickMs);
    if (elapsedMs === rotationMs) await provider.update({ keyset: [after, before] });
    void attempt(findKey, `made-up-${tick}`);
    if (elapsedMs % 1000 === 500) {
      const counts = elapsedMs > rotationMs && elapsedMs < rotationMs + 2 * minuteMs;
      if (counts) valid += 1;
      const kid = elapsedMs > rotationMs ? "after" : "before";
      pending.push(attempt(findKey, kid).then((found) => void (refused += counts && !found ? 1 : 0)));
    }
    await settle();
  }
  mock.timers.tick(minuteMs);
  await Promise.all(pending);
  return { name, fetches, valid, refused };
}

async function attempt(findKey: FindKey, kid: string): Promise<boolean> {
  try {
    await findKey(kid);
    return true;
  } catch {
    return false;
  }
}

/** Waits until only timers are pending, which can take several turns of the event loop. */
function realSettle(): () => Promise<void> {
  const turn = setImmediate;
  return async () => {
    for (let turns = 0; turns < 4; turns += 1) await new Promise<void>((resolve) => turn(resolve));
  };
}

async function entry(kid: string) {
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
  return { kid, signer: await localSigner(pair) };
}
