import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import * as jose from "jose";
import { JwksdError, type VerifyOptions, verify } from "../../src/index.ts";
import { ecKey, rsaKey, withoutPrivate } from "../support/keys.ts";
import { simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { type Signature, noSignature, signature } from "./compact.ts";

/*
 * Generated tokens, valid, modified and hostile, are passed to `verify` and to jose.jwtVerify, which must agree on all of them. jwksd's
 * additional rules are implemented again here, in a different way.
 */

const issuer = "https://op.example";
const audience = "https://rp.example";
const clock = simulatedClock();
const now = Math.floor(clock.now() / 1000);

/** An alg and its key, by kid. */
const privateKeys: Readonly<Record<string, readonly [alg: string, jwk: object]>> = {
  a: ["ES256", ecKey("a")],
  b: ["ES256", ecKey("b")],
  "nul\u0000": ["ES256", ecKey("nul")],
  p384: ["ES384", ecKey("p384", "P-384")],
  rsa: ["RS256", rsaKey()],
  pss: ["PS256", rsaKey()],
  ed: ["EdDSA", generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" })],
};
const kids = Object.keys(privateKeys);
const publicKeys = new Map<unknown, jose.CryptoKey>();
const signatures = new Map<string, Signature>();
for (const [kid, [alg, jwk]] of Object.entries(privateKeys)) {
  publicKeys.set(kid, (await jose.importJWK(withoutPrivate(jwk), alg)) as jose.CryptoKey);
  signatures.set(kid, signature(alg, jwk));
}

/** Returns a JSON object as text, in which a name can be repeated and a value need not be JSON. */
type Members = readonly (readonly [name: string, json: string])[];
const json = (members: Members): string =>
  `{${members.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`;
const members = (values: Readonly<Record<string, readonly unknown[]>>): fc.Arbitrary<Members> => {
  const all = Object.entries(values).flatMap(([name, list]) =>
    list.map((value) => [name, JSON.stringify(value) ?? "null"] as const),
  );
  return fc.array(fc.constantFrom(...all), { maxLength: 2 });
};
const rarely = <T>(usual: fc.Arbitrary<T>, seldom: fc.Arbitrary<T>, weight = 6): fc.Arbitrary<T> =>
  fc.oneof({ weight, arbitrary: usual }, { weight: 1, arbitrary: seldom });

const deep = "[".repeat(2_000) + "]".repeat(2_000);
const headerMembers = members({
  alg: ["ES256", "ES384", "RS256", "PS256", "EdDSA", "none", "HS256", "es256", "", null, 7, ["ES256"]],
  kid: [...kids, "unknown", "", null, 7, ["a"], "a\u0000", "nul", "constructor", "__proto__", "\ud800"],
  typ: ["JWT", "at+jwt", "application/AT+JWT", "", null, 7, ["at+jwt"], { toLowerCase: 1 }],
  crit: [[], ["b64"], ["b64", "b64"], ["exp"], ["b64", "x"], "b64", [""], [1], null, {}, [["b64"]], ["toString"]],
  b64: [true, false, null, "true", 1],
  jwk: [withoutPrivate(ecKey("b"))],
  zip: ["DEF"],
  enc: ["A256GCM"],
  ["__proto__"]: [{ alg: "ES256", kid: "a", crit: ["exp"] }, null],
  toString: [1],
  "": [""],
});
const claimMembers = members({
  iss: [issuer, `${issuer}/`, null, [issuer], ""],
  aud: [audience, [audience], ["x", audience], [[audience]], [], "x", null, { 0: audience }],
  exp: [now + 60, now + 1, now, now - 3, -1, 0.5, now + 0.5, String(now + 60), null, [now], 9e15, {}],
  nbf: [now, now + 1, now + 4, 0, null, "0", [0]],
  iat: [now, now + 1_000, -1, null, "now", {}],
  sub: ["alice", "", null, 7],
  ["__proto__"]: [{ exp: now + 60, sub: "x" }],
  toString: [1],
});
/** Members that JSON.stringify never writes. */
const oddMembers: fc.Arbitrary<Members> = fc.constantFrom<Members[]>(
  [["exp", "1e400"]],
  [["exp", "-0"]],
  [["nbf", "-1e400"]],
  [["iat", "1e999"]],
  [["x", deep]],
  [["x", "NaN"]],
  [["x", "0x1"]],
  [["x", "'x'"]],
  [["x", "1,"]],
  [["x", "1}{"]],
  [["x", '"\\ud800"']],
  [["x", '"\u0000"']],
  [["x", '"\\u0000"']],
  [["x", '1,"x":2,"\\u0078":3']],
);
const odd = rarely(fc.constant<Members>([]), oddMembers, 8);

/** Changes to the bytes of a JSON text. */
const wrap: fc.Arbitrary<(text: string) => Buffer> = rarely(
  fc.constant((text: string) => Buffer.from(text)),
  fc.constantFrom<((text: string) => Buffer)[]>(
    (text) => Buffer.from(` \n\t${text}\r\n `),
    (text) => Buffer.from(`\ufeff${text}`),
    (text) => Buffer.from(`\u00a0${text}`),
    (text) => Buffer.from(`${text}x`),
    (text) => Buffer.from(`${text}\u0000`),
    (text) => Buffer.from(`[${text}]`),
    (text) => Buffer.from(text.slice(0, -1)),
    (text) => Buffer.from(text, "utf16le"),
    (text) => Buffer.concat([Buffer.from(text.slice(0, -1)), Buffer.from([0x2c, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])]),
    (text) => Buffer.from(JSON.stringify(text)),
    () => Buffer.from("null"),
    () => Buffer.from("7"),
    () => Buffer.from("{}"),
    () => Buffer.from(""),
    () => Buffer.from(deep),
    () => Buffer.from("[".repeat(5_000)),
  ),
  10,
);

/** Changes to a signature. */
const bend: fc.Arbitrary<(signed: Buffer) => Buffer> = rarely(
  fc.constant((signed: Buffer) => signed),
  fc.oneof(
    fc.nat(1_000).map((bit) => (signed: Buffer) => {
      const bent = Buffer.from(signed);
      bent[bit % bent.length] = (bent[bit % bent.length] ?? 0) ^ (1 << (bit % 8));
      return bent;
    }),
    fc.nat(70).map((length) => (signed: Buffer) => signed.subarray(0, length)),
    fc.constantFrom<((signed: Buffer) => Buffer)[]>(
      (signed) => Buffer.concat([signed, Buffer.from([0])]),
      (signed) => Buffer.concat([Buffer.from([0]), signed]),
      (signed) => Buffer.alloc(signed.length),
      (signed) => Buffer.alloc(signed.length, 0xff),
      (signed) => Buffer.concat([signed.subarray(32), signed.subarray(0, 32)]),
      (signed) => Buffer.concat([Buffer.from([0x30, 0x44, 2, 32]), signed]),
      () => Buffer.from(noSignature(Buffer.alloc(0))),
    ),
  ),
  10,
);

/** Changes to a token. */
const respell: fc.Arbitrary<(token: string) => string> = rarely(
  fc.constant((token: string) => token),
  fc.oneof(
    fc
      .record({
        at: fc.nat(),
        text: fc.constantFrom(" ", "\n", "=", "==", ".", "+", "/", "-", "\u0000", "é", "A", "%20"),
      })
      .map(
        ({ at, text }) =>
          (token: string) =>
            token.slice(0, at % (token.length + 1)) + text + token.slice(at % (token.length + 1)),
      ),
    // The last character of a part may have unused bits.
    fc
      .record({ part: fc.nat(2), letter: fc.constantFrom("A", "B", "C", "D", "Q", "R", "g", "w", "_", "-") })
      .map(({ part, letter }) => (token: string) => {
        const parts = token.split(".");
        parts[part] = `${(parts[part] ?? "").slice(0, -1)}${letter}`;
        return parts.join(".");
      }),
    fc.nat(2).map((part) => (token: string) => token.split(".").toSpliced(part, 1).join(".")),
    fc.nat(2).map((part) => (token: string) => token.split(".").toSpliced(part, 1, "").join(".")),
    fc.nat(2).map((part) => (token: string) => token.split(".").toSpliced(part, 0, "e30").join(".")),
    fc.constantFrom<((token: string) => string)[]>(
      (token) => ` ${token}`,
      (token) => `${token}\n`,
      (token) => `${token}=`,
      (token) => token.replaceAll("-", "+").replaceAll("_", "/"),
      (token) => token.split(".").toReversed().join("."),
      () => "..",
      () => "",
    ),
  ),
  10,
);

const tokens = fc
  .record({
    kid: rarely(fc.constantFrom("a", "b", "nul\u0000", "ed"), fc.constantFrom(...kids), 9),
    // Occasionally, the signature is by another key than the named one.
    signer: rarely(fc.constant(undefined), fc.constantFrom(...kids), 12),
    header: rarely(fc.constant<Members>([]), headerMembers, 2),
    claims: rarely(fc.constant<Members>([]), claimMembers, 2),
    isFirst: fc.boolean(),
    odds: fc.tuple(odd, odd),
    wraps: fc.tuple(wrap, wrap),
    bend,
    respell,
  })
  .map(({ kid, signer = kid, header, claims, isFirst, odds, wraps: [wrapHeader, wrapClaims], bend, respell }) => {
    const ordered = (own: Members, more: Members): Members => (isFirst ? [...more, ...own] : [...own, ...more]);
    const alg = privateKeys[kid]?.[0];
    const ownHeader: Members = [
      ["alg", JSON.stringify(alg)],
      ["kid", JSON.stringify(kid)],
    ];
    const ownClaims: Members = [
      ["iss", JSON.stringify(issuer)],
      ["aud", JSON.stringify(audience)],
      ["exp", String(now + 60)],
    ];
    const head = wrapHeader(json(ordered(ownHeader, [...header, ...odds[0]]))).toString("base64url");
    const body = wrapClaims(json(ordered(ownClaims, [...claims, ...odds[1]]))).toString("base64url");
    const input = `${head}.${body}`;
    const signed = Buffer.from((signatures.get(signer) as Signature)(Buffer.from(input)));
    return respell(`${input}.${bend(signed).toString("base64url")}`);
  });

interface Expectations {
  readonly algorithms: string[];
  readonly typ: string | undefined;
  readonly clockToleranceSeconds: number;
  readonly requiredClaims: string[];
}
const expectations: fc.Arbitrary<Expectations> = fc.record({
  algorithms: fc.constantFrom<string[][]>(["ES256"], ["RS256", "PS256", "ES256", "EdDSA"], ["ES384", "ES256", "RS256"]),
  typ: rarely(fc.constant<string | undefined>(undefined), fc.constantFrom("at+jwt", "JWT"), 3),
  clockToleranceSeconds: fc.constantFrom(0, 5),
  requiredClaims: rarely(
    fc.constant<string[]>([]),
    fc.constantFrom<string[][]>(["sub"], ["toString"], ["nbf", "iat"]),
    3,
  ),
});

/** Content of an accepted token; `undefined` for a refused token. */
type Verdict = { readonly header: object; readonly claims: object } | undefined;

async function byJwksd(token: string, expected: Expectations): Promise<Verdict> {
  const options: VerifyOptions = { ...expected, issuer, audience, clock, keys: ({ kid }) => publicKeys.get(kid) };
  try {
    return await verify(token, options);
  } catch (error) {
    assert.ok(error instanceof JwksdError, `not a jwksd error: ${String(error)}`);
    return undefined;
  }
}

async function byJose(token: string, expected: Expectations): Promise<Verdict> {
  // jwksd's additional rules: 16 KiB at most, one spelling of each part, times that are numbers.
  const isCanonical = token.split(".").every((part) => Buffer.from(part, "base64url").toString("base64url") === part);
  if (token.length > 16_384 || !isCanonical) return undefined;
  try {
    const keyOf = ({ kid }: jose.JWSHeaderParameters): jose.CryptoKey => publicKeys.get(kid) ?? assert.fail();
    const { payload, protectedHeader } = await jose.jwtVerify(token, keyOf, {
      issuer,
      audience,
      algorithms: expected.algorithms,
      clockTolerance: expected.clockToleranceSeconds,
      requiredClaims: ["exp", ...expected.requiredClaims],
      currentDate: new Date(clock.now()),
      ...(expected.typ !== undefined && { typ: expected.typ }),
    });
    const areFinite = [payload.exp, payload.nbf, payload.iat].every((time) => Math.abs(time ?? 0) !== Infinity);
    return areFinite ? { header: protectedHeader, claims: payload } : undefined;
  } catch {
    return undefined;
  }
}

test("verify() and jose accept the same tokens and return the same content", async (t) => {
  const runs = soak(30_000, 700);
  let accepted = 0;
  const property = fc.asyncProperty(tokens, expectations, async (token, expected) => {
    const [ours, theirs] = await Promise.all([byJwksd(token, expected), byJose(token, expected)]);
    // Compared as text, because some are nested too deeply for deepEqual.
    assert.equal(JSON.stringify(ours), JSON.stringify(theirs));
    accepted += Number(ours !== undefined);
  });
  await fc.assert(property, { numRuns: runs });
  t.diagnostic(`${accepted} of ${runs} tokens were accepted`);
  // Enough of each kind that neither side could pass with the same result for all.
  assert.ok(accepted > runs / 10 && accepted < (runs * 9) / 10, `${accepted} of ${runs}`);
});
