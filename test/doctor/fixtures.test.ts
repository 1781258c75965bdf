import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Code, codes, examine } from "../../src/doctor/index.ts";
import { keyMaterial, rsaKey } from "../support/keys.ts";
import { fixtures } from "./fixtures.ts";
import { at, observed, published, sound } from "./observed.ts";

const found = async (...args: Parameters<typeof examine>): Promise<string[]> =>
  (await examine(...args)).map(({ code }) => code);

describe("each fault is found by its own code alone", () => {
  test("there are 60 fixtures or more, and one for every code", () => {
    assert.ok(fixtures.length >= 60, `${fixtures.length}`);
    const covered = new Set<string>(fixtures.map(({ code }) => code));
    assert.deepEqual(
      Object.keys(codes).filter((code) => !covered.has(code)),
      [],
    );
  });

  for (const { code, about = "", observations } of fixtures) {
    test(`${code} ${about}`, async () => {
      assert.deepEqual(await found(observations), [code]);
    });
  }

  test("nothing is found where nothing is wrong", async () => {
    assert.deepEqual(await found(observed()), []);
    assert.deepEqual(await found(observed({ keys: [sound] })), []);
    const rsa = published("rsa", rsaKey(), "RS256");
    const document = {
      id_token_signing_alg_values_supported: ["RS256", "ES256"],
      authorization_endpoint: "https://login.example.com/auth",
      token_endpoint: "https://login.example.com/token",
      response_types_supported: ["code"],
      subject_types_supported: ["public"],
    };
    assert.deepEqual(await found(observed({ keys: [sound, rsa], document })), []);
  });

  test("nothing is found where nothing was observed", async () => {
    assert.deepEqual(await found({ at }), []);
  });
});

describe("a finding", () => {
  test("names a leaked key by kid and thumbprint, its members by name, and tells nothing of their values", async () => {
    const leaked = fixtures.filter(({ code, signs }) => code === ("JWKS_PRIVATE_MEMBERS" satisfies Code) && signs);
    for (const { observations, signs } of leaked) {
      const [finding] = await examine(observations);
      const text = JSON.stringify(finding);
      assert.match(text, /kid \\"odd\\"\), thumbprint [\w-]{43}, has d/);
      for (const secret of keyMaterial(signs?.key)) assert.ok(!text.includes(secret));
    }
  });

  test("has a rule with an address, a link to its paragraph and a remedy", async () => {
    for (const { code, observations } of fixtures) {
      const [finding] = await examine(observations);
      assert.match(finding?.ruleUrl ?? "", /^https:/, `${code}: ${finding?.rule}`);
      assert.ok(finding?.link.endsWith(`#${code.toLowerCase()}`));
    }
  });

  test("tells ten places and how many there are", async () => {
    const keys = Array.from({ length: 50 }, (_, index) => ({ ...published(`kid ${index}`), alg: undefined }));
    const [finding] = await examine(observed({ keys }));
    assert.deepEqual([finding?.code, finding?.seen.length, finding?.count], ["JWKS_ALG_MISSING", 10, 50]);
  });
});
