import assert from "node:assert/strict";
import { lookup } from "node:dns/promises";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { createHostLookup } from "../../src/node/dns-lookup.ts";
import { createGuardedFetch, readEncryptionKeyset, readKeyset } from "../../src/node/index.ts";
import { permissionWarnings } from "../../src/node/read-key-files.ts";
import { clientId, tokenOf, verifier } from "../client/client.ts";
import { ecKey, named } from "../support/keys.ts";
import { refusal } from "../support/refusal.ts";
import { temporaryFolder } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";
import { verdict } from "../token/compact.ts";
import { type NameServer, nameServer } from "./name-server.ts";

/** Creates a lookup that queries a name server on loopback. */
async function system(t: TestContext, { answers }: { readonly answers: Parameters<typeof nameServer>[1] }) {
  const server = await nameServer(t, answers);
  const resolve = createHostLookup([server.address]);
  const addresses = async (host: string): Promise<string[]> => (await resolve(host)).map(({ address }) => address);
  return { server, resolve, addresses };
}

/** Returns each name that was queried, once, in order. */
const names = ({ questions }: NameServer): string[] => [...new Set(questions.map((text) => text.split(" ")[0] ?? ""))];

describe("a host lookup", () => {
  test("returns all addresses of both families", async (t) => {
    const answers = { "client.example": ["192.0.2.1", "2001:db8::1", "192.0.2.2"] };
    const { resolve, server } = await system(t, { answers });
    assert.deepEqual(await resolve("client.example"), [
      { address: "192.0.2.1", family: 4 },
      { address: "192.0.2.2", family: 4 },
      { address: "2001:db8::1", family: 6 },
    ]);
    assert.deepEqual(server.questions.toSorted(), ["client.example A", "client.example AAAA"]);
  });

  for (const address of ["192.0.2.1", "2001:db8::1"]) {
    test(`returns the addresses of one family if there are no others: ${address}`, async (t) => {
      const { addresses } = await system(t, { answers: { "client.example": [address] } });
      assert.deepEqual(await addresses("client.example"), [address]);
    });
  }

  const failures: [name: string, answer: readonly string[] | number, code: string][] = [
    ["a name that does not exist", 3, "ENOTFOUND"],
    ["a name without addresses", [], "ENOTFOUND"],
    ["a server that fails", 2, "ESERVFAIL"],
    ["a server that refuses", 5, "EREFUSED"],
    ["a name with 65 addresses", Array.from({ length: 65 }, (_, index) => `192.0.2.${index}`), "ENOTFOUND"],
  ];
  for (const [name, answer, code] of failures) {
    test(`rejects with ${code} for ${name}`, async (t) => {
      const { addresses } = await system(t, { answers: { "client.example": answer } });
      await assert.rejects(addresses("client.example"), { code });
    });
  }
});

describe("with a name server that does not respond", () => {
  test("the lookup ends with the signal's reason when the signal aborts", async (t) => {
    const { resolve, server } = await system(t, { answers: { "client.example": "silence" } });
    const aborting = new AbortController();
    const pending = resolve("client.example", { signal: aborting.signal });
    while (server.questions.length < 2) await new Promise(setImmediate);
    aborting.abort(new Error("enough"));
    await assert.rejects(pending, { message: "enough" });
    // Each type was queried once: without the signal, the resolver would query again after 2 s before it fails.
    assert.deepEqual(server.questions.toSorted(), ["client.example A", "client.example AAAA"]);
    await assert.rejects(resolve("client.example", { signal: aborting.signal }), { message: "enough" });
  });

  test("even a large number of lookups occupies no threads, so another lookup in the process does not wait", async (t) => {
    const { resolve, server } = await system(t, { answers: { "client.example": "silence" } });
    const aborting = new AbortController();
    const pending = Promise.allSettled(
      Array.from({ length: 20 }, () => resolve("client.example", { signal: aborting.signal })),
    );
    while (server.questions.length < 40) await new Promise(setImmediate);
    let over = false;
    void pending.then(() => (over = true));
    assert.ok((await lookup("localhost")).address);
    assert.equal(over, false);
    aborting.abort();
    await pending;
  });

  test("verification of a token stops waiting after 5 s, as measured by the verifier's clock, and the lookup ends at the same time", async (t) => {
    const { resolve, server } = await system(t, { answers: { "client.example": "silence" } });
    const clock = simulatedClock();
    const ended = Promise.withResolvers<unknown>();
    const fetch = createGuardedFetch({
      async resolve(host, options) {
        const pending = resolve(host, options);
        pending.then(ended.resolve, ended.resolve);
        return pending;
      },
    });
    const { clientAssertion } = verifier({ clock, fetch });
    const token = tokenOf("clientAssertion", { exp: clock.now() / 1000 + 60 });
    const checking = verdict(clientAssertion(token, { clientId, jwksUri: "https://client.example/jwks" }));
    while (server.questions.length === 0) await new Promise(setImmediate);
    await clock.advance(5_000);
    assert.equal(await checking, "ERR_FETCH_TIMEOUT");
    assert.equal(((await ended.promise) as { code?: string }).code, "ERR_FETCH_TIMEOUT");
  });
});

test("addresses from DNS must be public, like all other addresses", async (t) => {
  const { resolve, server } = await system(t, {
    answers: { "client.example": ["198.51.100.1"], "mixed.example": ["8.8.8.8", "::1"] },
  });
  const fetch = createGuardedFetch({ resolve });
  for (const host of ["client.example", "mixed.example"])
    assert.equal(await verdict(fetch(`https://${host}/`, {})), "ERR_ADDRESS_FORBIDDEN");
  assert.deepEqual(names(server), ["client.example", "mixed.example"]);
});

test("allows at most 500 lookups in flight; each one that ends frees a slot", async () => {
  const waiting: (() => void)[] = [];
  const fetch = createGuardedFetch({
    resolve: async () => {
      await new Promise<void>((resolve) => waiting.push(resolve));
      return [];
    },
  });
  const look = () => verdict(fetch("https://client.example/", {}));
  const looks = Array.from({ length: 500 }, look);
  await assert.rejects(fetch("https://client.example/", {}), {
    code: "ERR_FETCH_BUSY",
    retryable: true,
    retryAfterSeconds: 1,
  });
  assert.equal(await verdict(fetch("https://127.0.0.1/", {})), "ERR_ADDRESS_FORBIDDEN");
  waiting.splice(0).forEach((end) => end());
  assert.deepEqual(new Set(await Promise.all(looks)), new Set(["ERR_ADDRESS_FORBIDDEN"]));
  const last = look();
  waiting.splice(0).forEach((end) => end());
  assert.equal(await last, "ERR_ADDRESS_FORBIDDEN");
});

test("names both files if they contain the same key", async (t) => {
  const folder = await temporaryFolder(t);
  for (const name of ["2026-01.jwk", "2026-02.jwk"]) await writeFile(join(folder, name), JSON.stringify(ecKey("a")));
  const error = await refusal(() => readKeyset(folder), "ERR_KEY_DUPLICATE");
  assert.match(error.message, /2026-02\.jwk and .*2026-01\.jwk/);
});

test("if a folder has no key file, shows the command that generates a key", async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, "README.md"), "");
  const error = await refusal(() => readKeyset(folder), "ERR_KEYSET_EMPTY");
  assert.match(error.message, /jwksd keygen --out .*\/\d{4}-\d\d-\d\d\.jwk/);
});

test("an encryption key's exp becomes notAfter", async (t) => {
  const file = join(await temporaryFolder(t), "keys.json");
  await writeFile(file, JSON.stringify({ keys: [{ ...named("e"), use: "enc", exp: 1_900_000_000 }] }), { mode: 0o600 });
  const { entries, warnings } = await readEncryptionKeyset(file);
  assert.deepEqual(
    entries.map(({ kid, notAfter }) => ({ kid, notAfter })),
    [{ kid: "e", notAfter: new Date(1_900_000_000_000) }],
  );
  assert.deepEqual(warnings, []);
});

test("warns about a folder that other users can write to", async (t) => {
  const folder = join(await temporaryFolder(t), "keys");
  await mkdir(folder);
  await writeFile(join(folder, "a.jwk"), JSON.stringify(ecKey("a")), { mode: 0o600 });
  await chmod(folder, 0o777);
  const { warnings } = await readKeyset(folder);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? "", /users other than the owner can write.*chmod go-w/);
  await chmod(folder, 0o755);
  assert.deepEqual((await readKeyset(folder)).warnings, []);
});

const warns = (uid: number, mode: number): boolean =>
  permissionWarnings("f", { uid, mode, isFile: () => true }).length > 0;

test("accepts a secret file that only its owner can read, or a file owned by root that the current user can read through the file's group", (t) => {
  t.mock.method(process as { getuid(): number }, "getuid", () => 65_532);
  const rows = [
    [0, 0o440, false],
    [0, 0o640, false],
    [0, 0o444, true],
    [0, 0o660, true],
    [65_532, 0o600, false],
    [65_532, 0o440, true],
  ] as const;
  for (const [uid, mode, expected] of rows) assert.equal(warns(uid, mode), expected, `${uid} ${mode.toString(8)}`);
});
