import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { KeySetState } from "../../src/library/relying-party/index.ts";
import { type VerifyOptions, verify } from "../../src/library/token/verify.ts";
import { verificationKeysOnDemand } from "../../src/keys/jwk/verification-keys.ts";
import { createKeySet } from "../../src/library/relying-party/remote-key-set.ts";
import { heapUsed } from "../support/heap.ts";
import { ecKey, named, rsaKey, withoutPrivate } from "../support/keys.ts";
import {
  type Script,
  entry,
  entryOf,
  reply,
  routed,
  served,
  servedSet,
  settled,
  simulatedClock,
} from "../support/simulated.ts";
import { compact, signature } from "../token/compact.ts";
import { type Verifier, jwksUri, outcome, verifierOf, warmVerifier } from "./setup.ts";

const issuer = "https://op.example";
const evil = "https://evil.example";
const attackersKey = named("a", ecKey("attacker"));
const rsaEntry = entryOf(named("rsa", rsaKey()), { alg: "RS256", use: "sig" });

const claims = { iss: issuer, aud: "rp", sub: "s", exp: Date.parse("2026-11-20T13:00:00Z") / 1000 };

const check = ({ keys, clock }: Verifier, token: string, options: Partial<VerifyOptions> = {}): Promise<string> =>
  outcome(async () => {
    const algorithms = ["ES256", "RS256", "PS256"];
    const verified = await verify(token, { keys, issuer, audience: "rp", algorithms, clock, ...options });
    return verified.claims.sub;
  });

const verifier = (): Promise<Verifier> => warmVerifier(servedSet([entry("a"), rsaEntry]));

const sign = (header: object, key: object = ecKey("a"), more: object = {}): string =>
  compact({ alg: "ES256", kid: "a", ...header }, { ...claims, ...more }, signature("ES256", key));

// What has no need of a key set, such as the alg none, is in test/token/verify.test.ts; hostile sets are in test/jwk/verification-keys.test.ts.

test("what is not an attack is accepted", async () => {
  assert.equal(await check(await verifier(), sign({})), "s");
  const rs256 = compact({ alg: "RS256", kid: "rsa" }, claims, signature("RS256", rsaKey()));
  assert.equal(await check(await verifier(), rs256), "s");
});

test("a URL in the header of a token is not asked for keys (RFC 8725 section 3.10)", async () => {
  for (const name of ["jku", "x5u"]) {
    const target = await verifier();
    assert.equal(await check(target, sign({ [name]: `${evil}/keys` })), "s");
    assert.equal(
      await check(target, sign({ [name]: `${evil}/keys`, kid: "x" }, attackersKey)),
      "ERR_TOKEN_KID_UNKNOWN",
    );
    assert.deepEqual(
      target.origin.requests.map(({ url }) => url),
      [jwksUri],
    );
  }
});

const metadata = (of: string): Script => reply(200, JSON.stringify({ issuer: of, jwks_uri: `${of}/jwks` }));

describe("cache poisoning across issuers: two key sets, two issuers, one kid", () => {
  const both = routed({
    [`${issuer}/.well-known/openid-configuration`]: metadata(issuer),
    [`${evil}/.well-known/openid-configuration`]: metadata(evil),
    [`${issuer}/jwks`]: served(["a"]),
    [`${evil}/jwks`]: servedSet([entryOf(attackersKey)]),
  });
  const good = verifierOf(both, { issuer });
  const bad = verifierOf(both, { issuer: evil });
  const forged = sign({}, attackersKey);

  test("each verifies its own tokens only, whoever was asked first", async () => {
    assert.equal(await check(bad, sign({}, attackersKey, { iss: evil }), { issuer: evil }), "s");
    assert.equal(await check(good, forged), "ERR_TOKEN_SIGNATURE");
    assert.equal(await check(good, sign({})), "s");
    assert.equal(await check(bad, sign({}, ecKey("a"), { iss: evil }), { issuer: evil }), "ERR_TOKEN_SIGNATURE");
  });

  test("a token of one is not taken for one of the other", async () => {
    assert.equal(await check(good, sign({}, ecKey("a"), { iss: evil })), "ERR_TOKEN_CLAIM");
    assert.equal(await check(bad, forged, { issuer: evil }), "ERR_TOKEN_CLAIM");
  });

  test("nor is the stored state", async () => {
    const state = bad.keys.state() as KeySetState;
    const target = verifierOf(both, { issuer, state });
    assert.equal(await check(target, forged), "ERR_TOKEN_SIGNATURE");
  });

  test("nor a discovery document", async () => {
    const copied = verifierOf(routed({ [`${issuer}/.well-known/openid-configuration`]: metadata(evil) }), { issuer });
    assert.equal(await check(copied, forged), "ERR_DISCOVERY_ISSUER");
    assert.equal(copied.origin.requests.length, 1);
  });
});

test("of a server that makes up keys, with long kids, little is remembered", async () => {
  const jwk = withoutPrivate(ecKey("a"));
  let fetches = 0;
  const madeUp: Script = (...request) => {
    fetches += 1;
    const keys = Array.from({ length: 64 }, (_, key) => ({ ...jwk, kid: `${fetches} ${key} `.padEnd(1_000, "x") }));
    return servedSet(keys)(...request);
  };
  // One of a provider, and ten that anybody hosts.
  for (const [count, maxRemoved] of [
    [1, 1_000],
    [10, 64],
  ] as const) {
    const parts = { readKeys: verificationKeysOnDemand, maxRemoved };
    const sets = Array.from({ length: count }, () =>
      createKeySet({ jwksUri, fetch: async (url, init) => madeUp({ url, init, atMs: 0, headers: {} }, clock) }, parts),
    );
    const clock = simulatedClock();
    const refresh = async (times: number): Promise<void> => {
      for (let time = 0; time < times; time += 1) {
        for (const set of sets) await set.refresh();
        await settled();
      }
    };
    await refresh(1);
    const before = heapUsed();
    await refresh(17);
    const grown = heapUsed() - before;
    assert.ok(grown < 800_000, `${grown} bytes`);
  }
});
