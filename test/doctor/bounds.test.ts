import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Exchange, type Observations, examine } from "../../src/doctor/index.ts";
import { shown } from "../../src/doctor/format.ts";
import { rsaKey, withoutPrivate } from "../support/keys.ts";
import { at, bytes, observed, published, response, sound } from "./observed.ts";

const codesOf = async (observations: Observations): Promise<string[]> =>
  (await examine(observations)).map(({ code }) => code);
const day = 24 * 3600 * 1000;

const withExponent = (e: string): Promise<string[]> => {
  const rsa = { ...withoutPrivate(rsaKey()), e, kid: "rsa", alg: "RS256", use: "sig" };
  const document = { id_token_signing_alg_values_supported: ["ES256", "RS256"] };
  return codesOf(observed({ keys: [sound, rsa], document }));
};

const aged = (days: number): Promise<string[]> => {
  const made = new Date(at - days * day).toISOString().slice(0, 10);
  return codesOf(observed({ keys: [published(`key-${made}`)] }));
};

describe("a value at its bound is on the good side", () => {
  test("an RSA exponent of 32 bits is usual, one of 33 is not", async () => {
    assert.deepEqual(await withExponent("_____w"), []);
    assert.deepEqual(await withExponent("AQAAAAE"), ["JWKS_RSA_EXPONENT_LARGE"]);
  });

  test("a text of 60 characters is shown whole, of a longer one its first 60", () => {
    assert.equal(shown("x".repeat(60)), `"${"x".repeat(60)}"`);
    assert.equal(shown("x".repeat(61)), `"${"x".repeat(60)}…"`);
  });

  test("the same keys in another order are no difference between IPv4 and IPv6, and what is no set is one", async () => {
    const [a, b] = [published("a"), published("b")];
    const over = (ipv4: unknown, ipv6: unknown): Promise<string[]> => {
      const probes: Record<string, Exchange> = { ipv4: response(bytes(ipv4)), ipv6: response(bytes(ipv6)) };
      return codesOf(observed({ keys: [a, b], probes }));
    };
    assert.deepEqual(await over({ keys: [a, b] }, { keys: [b, a] }), []);
    assert.deepEqual(await over({ keys: [a, b] }, { keys: [b] }), ["HTTP_ADDRESSES_DIFFER"]);
    assert.deepEqual(await over("no set", "no set either"), ["HTTP_ADDRESSES_DIFFER"]);
  });

  test("a median of 250 ms is not slow, and one of 500 ms is not the worse of the two", async () => {
    const slow = (waitMs: number): Promise<string[]> => codesOf(observed({ set: { waitMs } }));
    assert.deepEqual(await slow(250), []);
    assert.deepEqual(await slow(251), ["HTTP_SLOW_250"]);
    assert.deepEqual(await slow(500), ["HTTP_SLOW_250"]);
    assert.deepEqual(await slow(501), ["HTTP_SLOW_500"]);
  });

  test("a signing key whose kid is a date is old after a year, and not before", async () => {
    assert.deepEqual(await aged(364), []);
    assert.deepEqual(await aged(367), ["JWKS_ONE_OLD_KEY"]);
  });
});
