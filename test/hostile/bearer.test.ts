import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { calculateJwkThumbprint } from "jose";
import { createBearerGuard } from "../../src/verify/bearer/index.ts";
import { heapUsed } from "../support/heap.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { randomFrom } from "../support/random.ts";
import { entryOf, routed, reply, scriptedOrigin, servedSet, simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { compact, encode, signature } from "../token/compact.ts";

// Mutated header fields, proofs and tokens: each is refused with a valid HTTP response that quotes none of it, requests to the provider stay
// within the budget, and nothing is kept in memory.

const issuer = "https://op.example";
const audience = "https://api.example.com";
const requests = soak(30_000, 2_000);

const characters = ' \t"\\,;=.-_~+/%$<>[]{}()\u00e4\u00ff09azAZeyJ'.split("");
const objects: readonly unknown[] = [null, true, [], {}, ["x"], { x: 1 }];
const values: readonly unknown[] = [...objects, 0, -1, 1e308, 2 ** 53, "", "x", "a".repeat(300), '\u0000"\\\u2028'];

/** Inserts, removes and replaces a few characters. */
function mutated(text: string, random: (below: number) => number): string {
  let changed = text;
  for (let change = 0; change <= random(3); change += 1) {
    const at = random(changed.length + 1);
    const put = random(3) === 0 ? "" : (characters[random(characters.length)] as string);
    changed = changed.slice(0, at) + put + changed.slice(at + random(2 + (put === "" ? 1 : 0)));
  }
  return changed;
}

test(`${requests} mutated requests: none is accepted`, async (t) => {
  const next = randomFrom(20_261_123);
  const random = (below: number): number => Math.floor(next() * below);
  const pick = <T>(list: readonly T[]): T => list[random(list.length)] as T;
  const clock = simulatedClock();
  const key = ecKey("a");
  const clientKey = ecKey("client");
  const jwk = withoutPrivate(clientKey);
  const cnf = { jkt: await calculateJwkThumbprint(jwk) };
  const origin = scriptedOrigin(
    clock,
    routed({
      [`${issuer}/.well-known/openid-configuration`]: reply(
        200,
        JSON.stringify({ issuer, jwks_uri: `${issuer}/jwks` }),
      ),
      [`${issuer}/jwks`]: servedSet([entryOf({ ...key, kid: "a" })], { "Cache-Control": "max-age=3600" }),
    }),
  );
  const { check } = createBearerGuard({
    issuer: (name) => name === issuer,
    audience,
    dpop: "optional",
    baseUrl: audience,
    nonceSecret: undefined,
    clock,
    keySet: { fetch: origin.fetch, maxWaitMs: 0 },
  });
  const seconds = (): number => Math.floor(clock.now() / 1000);
  const header = { alg: "ES256", kid: "a", typ: "at+jwt" };
  const claims = () => ({ iss: issuer, aud: audience, sub: "alice", exp: seconds() + 3_600 });
  const sign = signature("ES256", key);
  const proofHeader = { typ: "dpop+jwt", alg: "ES256", jwk };
  const proofOf = (token: string, more: object = {}, moreHeader: object = {}): string => {
    const ath = createHash("sha256").update(token).digest("base64url");
    const all = { jti: `${random(2 ** 30)}`, htm: "GET", htu: `${audience}/`, iat: seconds(), ath, ...more };
    return compact({ ...proofHeader, ...moreHeader }, all, signature("ES256", clientKey));
  };

  let plain = compact(header, claims(), sign);
  let bound = compact(header, { ...claims(), cnf }, sign);
  const renew = (): void => {
    plain = compact(header, claims(), sign);
    bound = compact(header, { ...claims(), cnf }, sign);
  };
  /** Reports whether the field still has the valid token under its scheme. */
  const isUnchanged = (authorization: string): boolean =>
    /^bearer +(.*?) *$/i.exec(authorization.replace(/^[ \t]+|[ \t]+$/g, ""))?.[1] === plain;

  type Fields = Readonly<Record<string, string>>;
  const kinds: readonly (() => Fields | undefined)[] = [
    // A mutated header field.
    () => {
      const authorization = mutated(`Bearer ${plain}`, random);
      return isUnchanged(authorization) ? undefined : { Authorization: authorization };
    },
    // A wrong header parameter, signed by the provider's key, which a provider would never do.
    () => {
      const name = pick(["alg", "kid", "typ", "crit"]);
      const value = pick([...values, ["b64"], "none", "HS256", "RS256", "JWT"]);
      return { Authorization: `Bearer ${compact({ ...header, [name]: value }, claims(), sign)}` };
    },
    // A wrong claim, signed by the provider's key.
    () => {
      const name = pick(["iss", "aud", "exp", "nbf", "cnf"]);
      const value =
        name === "nbf"
          ? pick(["x", null, [], seconds() + 60])
          : name === "exp"
            ? pick(["x", null, [], -1, 0])
            : pick(values);
      return { Authorization: `Bearer ${compact(header, { ...claims(), [name]: value }, sign)}` };
    },
    // A payload that is not an object of claims.
    () => ({
      Authorization: `Bearer ${compact(header, pick(["", "x", "[]", "null", "{", '{"a":1}{', "\u00ff"]), sign)}`,
    }),
    // A made-up kid or issuer, without a signature.
    () => {
      const changedHeader = random(2) === 0 ? { ...header, kid: mutated("a", random) || "b" } : header;
      const iss = changedHeader === header ? mutated(issuer, random) : issuer;
      const token = `${encode(changedHeader)}.${encode({ ...claims(), iss })}.${"A".repeat(86)}`;
      return { Authorization: `Bearer ${token}` };
    },
    // A wrong proof.
    () => {
      const kind = random(4);
      const name = pick(["jti", "htm", "htu", "iat", "ath"]);
      const wrong =
        name === "jti"
          ? pick([null, "", 0, [], {}])
          : name === "iat"
            ? pick([null, "x", [], 0, -1, 2 ** 53])
            : pick(values);
      const proof = proofOf(bound);
      const changed = mutated(proof, random);
      if (kind === 0 && changed.trim() === proof) return undefined;
      return {
        Authorization: `DPoP ${bound}`,
        ...(kind === 0 && { DPoP: changed }),
        ...(kind === 1 && { DPoP: proofOf(bound, { [name]: wrong }) }),
        ...(kind === 2 && { DPoP: proofOf(bound, {}, { [pick(["alg", "typ", "jwk"])]: pick(values) }) }),
      };
    },
    // A token that is bound to the client's key, under the wrong scheme or with the proof for another token.
    () =>
      random(2) === 0 ? { Authorization: `Bearer ${bound}` } : { Authorization: `DPoP ${bound}`, DPoP: proofOf(plain) },
  ];

  const statuses: Record<number, number> = {};
  async function send(fields: Fields): Promise<void> {
    let request: Request;
    try {
      request = new Request(`${audience}/${pick(["", "", "?a=b", "?access_token=x"])}`, { headers: fields });
    } catch {
      // HTTP cannot carry this field.
      return;
    }
    const answer = await check(request);
    const sent = JSON.stringify(fields);
    assert.ok(answer instanceof Response, `accepted: ${sent}`);
    assert.ok([400, 401, 503].includes(answer.status), `${answer.status}: ${sent}`);
    statuses[answer.status] = (statuses[answer.status] ?? 0) + 1;
    if (answer.status === 503) return;
    const challenge = answer.headers.get("www-authenticate") ?? "";
    assert.match(challenge, /^(?:(?:Bearer|DPoP)(?: \w+="[ !#-[\]-~]*"(?:, \w+="[ !#-[\]-~]*")*)?(?:, |$))+$/, sent);
  }

  // Memory is measured after a warm-up, because the first requests also allocate compiled code.
  let before = 0;
  const warmUp = Math.floor(requests / 4);
  for (let number = 0; number < requests; number += 1) {
    const fields = pick(kinds)();
    if (fields !== undefined) await send(fields);
    // A thousand requests a second.
    if (number % 1_000 === 0) await clock.advance(1_000);
    if (number % 600_000 === 0) renew();
    if (number === warmUp) before = heapUsed();
  }
  t.diagnostic(`${JSON.stringify(statuses)}, ${origin.requests.length} requests, ${heapUsed() - before} bytes`);
  // One request in ten seconds for unknown kids, one a minute for discovery, and the first ones.
  assert.ok(
    origin.requests.length <= (requests / 1_000) * (1 / 10 + 1 / 60) + 12,
    `${origin.requests.length} requests`,
  );
  assert.ok(heapUsed() - before < 8_000_000, "memory");
  const request = new Request(`${audience}/`, {
    headers: { Authorization: `Bearer ${compact(header, claims(), sign)}` },
  });
  assert.ok(!((await check(request)) instanceof Response), "a valid token is accepted afterwards");
});
