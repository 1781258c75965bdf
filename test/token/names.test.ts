// Names that some verifiers confuse with others. A token is signed only if a verifier in Go reads the intended values from it.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { createProvider, localSigner } from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import { part, skipWithout } from "../support/parts.ts";
import { soak } from "../support/soak.ts";

const issuer = "https://op.example";
const keyset = [{ kid: "a", signer: await localSigner(ecKey("a")) }];
const provider = await createProvider({ issuer, keyset });
const hour = { lifetimeSeconds: 3_600 };
const claimNames = ["iss", "sub", "aud", "exp", "nbf", "iat", "jti"];
const invalid = { code: "ERR_CLAIMS_INVALID" };

/** ASCII letters, and all letters that equal one if case is ignored. */
const lookalikes = ((): ReadonlyMap<string, readonly string[]> => {
  const found = new Map(Array.from("abcdefghijklmnopqrstuvwxyz", (letter) => [letter, [] as string[]]));
  for (let code = 0; code <= 0x10ffff; code += 1) {
    if (code >= 0xd800 && code <= 0xdfff) continue;
    const letter = String.fromCodePoint(code);
    for (const same of [letter.toLowerCase(), letter.toUpperCase().toLowerCase(), letter.toLowerCase().at(0) ?? ""])
      if (same !== letter) found.get(same)?.push(letter);
  }
  return found;
})();

describe("rejects a name that differs from a registered name only in case", () => {
  test("even with Unicode letters whose uppercase or lowercase form is ASCII", () => {
    const others = [...lookalikes].flatMap(([, letters]) => letters.filter((letter) => !/[A-Z]/.test(letter)));
    assert.deepEqual(new Set(others), new Set(["\u017f", "\u212a", "\u0130", "\u0131"]));
  });

  for (const name of claimNames) {
    test(`as a claim, for ${name}`, async () => {
      const variants = Array.from(name, (letter, at) =>
        (lookalikes.get(letter) ?? []).map((other) => name.slice(0, at) + other + name.slice(at + 1)),
      ).flat();
      assert.ok(variants.length >= 3);
      for (const variant of [name.toUpperCase(), ...variants])
        await assert.rejects(provider.sign({ [variant]: "x" }, hour), invalid, variant);
    });
  }

  test("as a claim, even if one letter becomes two in uppercase (iß, ISS)", async () => {
    await assert.rejects(provider.sign({ iß: "x" }, hour), invalid);
  });

  test("in a header", async () => {
    for (const name of ["ALG", "Kid", "TYP", "\u212aid", "JW\u212a", "X5T#s256", "x5t#\u017f256"])
      await assert.rejects(provider.sign({}, { ...hour, header: { [name]: "x" } }), invalid, name);
  });
});

test("signs a token if its names only look similar to registered names or are in nested objects", async () => {
  await provider.sign({ AUDIENCE: 1, Scope: 1, "sub ": 1, аud: 1, act: { SUB: "x", Aud: "y" } }, hour);
  await provider.sign({}, { ...hour, header: { Cty: "x", algorithm: "x" } });
});

const skip = skipWithout("go");
const program = join(import.meta.dirname, "reader.go");

/** Returns the values that the verifier in Go reads from JSON texts. */
async function readInGo(texts: readonly string[]): Promise<Record<string, unknown>[]> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const child = execFile(part("go"), ["run", program], { maxBuffer: 2 ** 26 }, (error, stdout) =>
    error === null ? resolve(stdout) : reject(error),
  );
  child.stdin?.end(texts.map((text) => `${text}\n`).join(""));
  return (await promise)
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

const given = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, `of ${name}`]));
const read = (members: object, names: readonly string[]): object =>
  Object.fromEntries(Object.entries(members).filter(([name]) => names.includes(name)));

// This is the reason: a verifier in Go uses the last of both.
const pairs = [
  ["aud", "AUD"],
  ["exp", "Exp"],
  ["sub", "\u017fub"],
  ["kid", "\u212aid"],
] as const;

test("a verifier in Go reads the intended values from every signed token", { skip }, async (t) => {
  const letters = Array.from("ſKİıßSUABIXPEDTYkdtyp\u0307");
  const near = fc
    .tuple(fc.constantFrom(...claimNames, "kid", "typ", "alg"), fc.nat(2), fc.constantFrom(...letters))
    .map(([name, at, letter]) => name.slice(0, at) + letter + name.slice(at + 1));
  // fast-check's "binary" unit takes a second to set up.
  const codePoint = fc.nat(0x10ffff).map((code) => String.fromCodePoint(code >= 0xd800 && code < 0xe000 ? 0x20 : code));
  const name = fc.oneof(
    { weight: 4, arbitrary: near },
    fc.constantFrom("jti", "sub", "aud"),
    fc.string({ unit: codePoint }),
  );
  const claims = fc.uniqueArray(name, { maxLength: 4 });
  const signed: { readonly text: string; readonly names: readonly string[] }[] = [];
  let refused = 0;
  const headerNames = ["alg", "kid", "typ"];
  await fc.assert(
    fc.asyncProperty(claims, claims, async (claims, headers) => {
      const token = await provider.sign(given(claims), { ...hour, header: given(headers) }).catch(() => undefined);
      if (token === undefined) {
        refused += 1;
        return;
      }
      const [header = "", payload = ""] = token.split(".").map((part) => Buffer.from(part, "base64url").toString());
      signed.push({ text: header, names: headerNames }, { text: payload, names: claimNames });
    }),
    { numRuns: soak(20_000, 800) },
  );
  t.diagnostic(`${signed.length / 2} signed, ${refused} refused`);
  assert.ok(signed.length > 200 && refused > 40);
  const both = pairs.map(([name, other]) => JSON.stringify({ [name]: "checked", [other]: "not" }));
  const all = await readInGo([...both, ...signed.map(({ text }) => text)]);
  const found = all.splice(both.length);
  assert.deepEqual(
    all,
    pairs.map(([name]) => ({ [name]: "not" })),
  );
  for (const [index, { text, names }] of signed.entries())
    assert.deepEqual(read(found[index] ?? {}, names), read(JSON.parse(text) as object, names), text);
});
