import assert from "node:assert/strict";
import { type RequestListener, createServer } from "node:http";
import { type TestContext, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Browser } from "playwright-core";
import { createProvider, localSigner } from "../../src/index.ts";
import type { KeySetState } from "../../src/verify/relying-party/index.ts";
import { pageVerifier } from "../support/chromium.ts";
import { named } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { soak } from "../support/soak.ts";
import type { NextWindow, Window } from "../support/verifier.ts";

const timeout = 60_000;
const page = fileURLToPath(new URL("./trust-page.ts", import.meta.url));

const entry = async (kid: string) => ({ kid, signer: await localSigner(named(kid)) });
const at = (seconds: number): Window => ({ number: seconds, tokens: ["a"] });

/** Starts a provider with the keys "a" and "b". @param age the Age header of a cache in front of it */
async function startProvider(t: TestContext, rotationMode: boolean, age?: string) {
  const listener: RequestListener = (request, response) => {
    if (age !== undefined) response.setHeader("Age", age);
    provider.node(request, response);
  };
  const issuer = `http://127.0.0.1:${await listening(t, createServer(listener))}`;
  const provider = await createProvider({
    issuer,
    keyset: [await entry("a"), await entry("b")],
    jwksRotationActive: () => rotationMode,
  });
  return { issuer, provider, revoke: async () => provider.update({ keyset: [await entry("b")] }) };
}

type Row = readonly [
  name: string,
  rotationMode: boolean,
  age: string | undefined,
  ...seconds: [last: number, end: number],
];

/** Defines the tests. @param browser returns the browser, once the tests run */
export function checkTrust(browser: () => Browser): void {
  describe("a page from another origin with a clock that is set forward", () => {
    // The page's clock is set forward but the browser cache's is not, so the cache considers every response fresh.
    const rows: readonly Row[] = [
      ["the 5 minutes of rotation mode", true, undefined, 239, 300],
      ["the 2 hours of the long mode, without requests meanwhile", false, undefined, 3_539, 7_200],
      ["the time left by an intermediate cache", true, "200", 79, 100],
    ];
    for (const [name, rotationMode, age, lastSeconds, endSeconds] of rows.slice(0, soak(rows.length, 1))) {
      test(`a revoked key is trusted for ${name}, and no longer`, { timeout }, async (t) => {
        const op = await startProvider(t, rotationMode, age);
        const next: NextWindow = async (after) => {
          if (after === -1) return at(0);
          if (after === 0) await op.revoke();
          return after === 0 ? at(lastSeconds) : after === lastSeconds ? at(endSeconds) : { ...at(0), refused: [] };
        };
        const { refusals, state } = await pageVerifier(t, browser(), op, page)(next);
        assert.deepEqual(refusals, ["trusted", "trusted", "ERR_TOKEN_KID_UNKNOWN"]);
        const { etag, headers } = state as KeySetState;
        const response = await op.provider.fetch(new Request(op.provider.jwksUri));
        assert.equal(etag, response.headers.get("etag"));
        assert.equal(headers.age, age);
        assert.ok(!Number.isNaN(Date.parse(headers.date ?? "")), headers.date);
      });
    }
  });
}
