import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { ecKey, named, withoutPrivate } from "../support/keys.ts";
import { runCli } from "../support/service.ts";
import { compact, signature } from "../token/compact.ts";

const timeout = 60_000;
const good = { alg: "ES256", kid: "a" };
const goodKey = withoutPrivate(named("a"));
const es256 = signature("ES256", ecKey("a"));
// What String() and template literals throw at.
const thrower = { toString: 1, valueOf: 1 };
const deep = "[".repeat(100_000) + "]".repeat(100_000);

/** A provider that publishes whatever text it is given. */
async function publish(t: TestContext): Promise<{ issuer: string; set: (text: string) => void }> {
  let text = "";
  const server = createServer((request, response) => {
    const isSet = request.url === "/jwks";
    response.end(isSet ? text : JSON.stringify({ issuer, jwks_uri: `${issuer}/jwks` }));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close().closeAllConnections());
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { issuer, set: (next) => void (text = next) };
}

interface Row {
  readonly name: string;
  readonly header?: object;
  readonly claims?: object;
  readonly keys?: readonly unknown[];
  /** The text of the set, where it is not made from `keys`. */
  readonly text?: string;
  /** What the details hold. */
  readonly says: string;
  readonly code?: string;
}

const rows: readonly Row[] = [
  { name: "a kid that is an object", header: { kid: thrower }, says: "kid (an object)", code: "ERR_TOKEN_KID_MISSING" },
  { name: "a kid that is empty", header: { kid: "" }, says: 'kid "",', code: "ERR_TOKEN_KID_MISSING" },
  { name: "an alg that is an object", header: { alg: thrower }, says: "alg (an object)", code: "ERR_TOKEN_ALG" },
  { name: "no alg", header: { alg: undefined }, says: "alg missing", code: "ERR_TOKEN_ALG" },
  { name: "a typ that is an object", header: { typ: { toString: null } }, says: "typ (an object)" },
  { name: "a typ that is a list of such", header: { typ: [thrower] }, says: "typ (a list)" },
  { name: "a typ of null", header: { typ: null }, says: "typ null" },
  { name: "an aud that holds an object", claims: { aud: ["me", thrower] }, says: "aud me, (an object)," },
  { name: "a set that holds null", keys: [null, goodKey], says: "has 2 keys: (no kid), a" },
  { name: "a set that holds no keys at all", keys: ["x", 5, goodKey], says: "has 3 keys: (no kid), (no kid), a" },
  { name: "a foreign kid that is an object", keys: [{ kid: thrower }, goodKey], says: "2 keys: (an object), a" },
  {
    name: "a foreign kid that is nested deeply",
    text: `{"keys":[{"kid":${deep}},${JSON.stringify(goodKey)}]}`,
    says: "2 keys: (a list), a",
  },
];

test("jwksd verify: whatever is in a token or a set, the steps are told", { timeout }, async (t) => {
  const { issuer, set } = await publish(t);
  const own = { iss: issuer, aud: "me", exp: Date.now() / 1000 + 3600 };
  for (const { name, header, claims, keys = [goodKey], text = JSON.stringify({ keys }), says, code } of rows) {
    await t.test(name, async () => {
      set(text);
      const token = compact({ ...good, ...header }, { ...own, ...claims }, es256);
      const args = ["verify", token, "--issuer", issuer, "--aud", "me"];
      const run = await runCli(t, args);
      assert.deepEqual({ code: run.code, stderr: run.stderr }, { code: code === undefined ? 0 : 1, stderr: "" });
      assert.ok(run.stdout.includes(says), run.stdout);
      const { steps } = JSON.parse((await runCli(t, [...args, "--json"])).stdout) as { steps: { code?: string }[] };
      assert.equal(steps.at(-1)?.code, code);
    });
  }
});
