import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { type SignOptions, createProvider, localSigner } from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import { simulatedClock } from "../support/simulated.ts";
import { read, verdict } from "./compact.ts";

// Libraries of providers set the times of a token themselves. Nothing that they set may outlive the key (RFC 7519 section 4.1).

const issuer = "https://op.example";
const clock = simulatedClock();
clock.setBy(999);
const now = Math.floor(clock.now() / 1000);
const provider = await createProvider({
  issuer,
  keyset: [{ kid: "a", signer: await localSigner(ecKey("a")) }],
  maxTokenLifetimeSeconds: 3600,
  clock,
});

const sign = (claims: object, options: SignOptions = {}): Promise<string> =>
  provider.sign({ aud: "api", ...claims }, options);

describe("times that the claims have already are kept, within the policy", () => {
  const rows: [source: string, claims: object, options?: SignOptions][] = [
    ["4.1.4, 4.1.6", { iat: now, exp: now + 900 }],
    ["4.1.4: as long as the policy allows", { exp: now + 3600 }],
    ["4.1.4: a second", { exp: now + 1 }],
    ["4.1.4: a part of a second", { exp: now + 1.5 }],
    ["4.1.6: of a clock that is ahead", { iat: now + 60, exp: now + 900 }],
    ["4.1.6: of a token that is issued again", { iat: now - 86_400, exp: now + 900 }],
    ["4.1.6: with a lifetime", { iat: now - 5 }, { lifetimeSeconds: 60 }],
    ["4.1.5", { nbf: now, exp: now + 900 }],
    ["4.1.5: for later", { nbf: now + 899, exp: now + 900 }],
    ["4.1.1", { iss: issuer, iat: now, exp: now + 900 }],
  ];
  for (const [source, claims, options] of rows) {
    test(`RFC 7519 section ${source}: ${inspect(claims)}`, async () => {
      const token = await sign(claims, options);
      const exp = now + (options?.lifetimeSeconds ?? 0);
      assert.deepEqual(read(token).claims, { aud: "api", iss: issuer, iat: now, exp, ...claims });
      if (!source.startsWith("4.1.5: for later"))
        assert.equal(await verdict(provider.verify(token, { audience: "api", clockToleranceSeconds: 60 })), "accepted");
    });
  }
});

describe("times outside of it are refused, by name", () => {
  const rows: [claims: object, message: RegExp, options?: SignOptions][] = [
    [
      { exp: now + 3601 },
      / is 3601 seconds ahead, and may be 3600 at most, .*raise maxTokenLifetimeSeconds \(of managed keys: jwksd policy\); "exp" is in seconds/,
    ],
    [{}, /^lifetimeSeconds is 3601, and may be 3600 at most/, { lifetimeSeconds: 3601 }],
    [{ exp: 1e300 }, /^claim "exp" is .* ahead/],
    [{ exp: now }, /^claim "exp" is 0 seconds ago/],
    [{ exp: now - 1 }, /^claim "exp" is 1 seconds ago/],
    [{ exp: now + 60 }, /^give either/, { lifetimeSeconds: 60 }],
    [{ exp: now + 900, iat: now + 61 }, /^claim "iat" is 61 seconds ahead/],
    [{ iat: now + 61 }, /^claim "iat" is 61 seconds ahead/, { lifetimeSeconds: 900 }],
    [{ exp: now + 10, iat: now + 10 }, /^claim "iat" is not before "exp"/],
    [{ exp: now + 10, nbf: now + 10 }, /^claim "nbf" is not before "exp"/],
    [{ nbf: now + 60 }, /^claim "nbf" is not before "exp"/, { lifetimeSeconds: 60 }],
    [{ exp: now + 900, iss: "https://other.example" }, /^claim "iss"/],
    [{ iat: now }, /^lifetimeSeconds must be/],
    ...["exp", "iat", "nbf"].flatMap((name) =>
      [`${now + 60}`, null, Number.NaN, Infinity, new Date(), true, [now]].map((value): [object, RegExp] => [
        { exp: now + 900, [name]: value },
        new RegExp(`^claim "${name}" must be a number`),
      ]),
    ),
  ];
  for (const [claims, message, options] of rows) {
    test(inspect(claims, { breakLength: Infinity }), async () => {
      await assert.rejects(sign(claims, options), { name: "TokenError", code: "ERR_CLAIMS_INVALID", message });
    });
  }
});
