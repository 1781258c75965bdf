import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { type HttpExchange, type Observations, examine } from "../../src/doctor/index.ts";
import { watchJwkSet } from "../../src/doctor/node/index.ts";
import type { Provider } from "../../src/provider/types.ts";
import { World, issuer } from "../manager/world.ts";
import { hour, second } from "../rules/key-records.ts";
import { keySetText, runCli, startService, temporaryFolder } from "../support/service.ts";
import { waitedFor } from "./waited-for.ts";

const jwksUri = `${issuer}/jwks`;
const ask = async (provider: Provider, url: string, init: RequestInit = {}): Promise<HttpExchange> => {
  const { status, headers, body } = await provider.fetch(new Request(url, init));
  const content = body === null ? undefined : new Uint8Array(await new Response(body).arrayBuffer());
  return { url, status, headers: [...headers], waitMs: 1, ...(content !== undefined && { body: content }) };
};
const askFor = async (provider: Provider, at: number): Promise<Observations> => {
  const get = (headers: Readonly<Record<string, string>> = {}): Promise<HttpExchange> =>
    ask(provider, jwksUri, { headers });
  const set = await get();
  const etag = set.headers?.find(([name]) => name === "etag")?.[1] ?? "";
  const probes = {
    again: set,
    head: await ask(provider, jwksUri, { method: "HEAD" }),
    revalidate: await get({ "if-none-match": etag }),
    weak: await get({ "if-none-match": `W/${etag}` }),
    foreign: await get({ "if-none-match": '"other"' }),
    json: await get({ accept: "application/json" }),
    origin: await get({ origin: "https://relying-party.example" }),
  };
  return { at, issuer, discovery: await ask(provider, `${issuer}/.well-known/openid-configuration`), set, probes };
};

/** Watches a provider with managed keys, and does something to them meanwhile. */
async function found(
  durationMs: number,
  meanwhile: (world: World, manager: Awaited<ReturnType<World["start"]>>) => Promise<unknown>,
) {
  const world = new World();
  const replica = await world.start();
  const { provider } = replica;
  await world.pass(hour);
  const events: string[] = [];
  const { clock, waiting } = waitedFor(world.clock);
  let isOver = false;
  const watching = watchJwkSet(await askFor(provider, world.clock.now()), {
    durationMs,
    intervalMs: durationMs / 100,
    clock,
    ask: () => ask(provider, jwksUri),
    tokens: async () => [await provider.sign({ sub: "a", aud: "b" }, { lifetimeSeconds: 3600 })],
    onEvent: ({ text }) => void events.push(text),
  }).finally(() => (isOver = true));
  for (let fetches = 0; ; fetches += 1) {
    await waiting(() => isOver);
    if (isOver) break;
    if (fetches === 5) await meanwhile(world, replica);
    await world.pass(durationMs / 100);
  }
  const again = await askFor(provider, world.clock.now());
  const codes = [...(await examine(await watching)), ...(await examine(again))].map(({ code }) => code);
  await world.stop(replica);
  return { codes: [...new Set(codes)], events };
}

/** Whatever the doctor finds here is a bug in the provider or in the doctor. */
describe("when run against our own provider in simulated time, the doctor", () => {
  test("finds nothing during a whole rotation", async () => {
    const { codes, events } = await found(60 * hour, async (world, { manager }) => {
      await world.until(manager.execute({ type: "announce", key: await world.until(manager.makeKey("sig")) }));
    });
    assert.deepEqual(codes, []);
    const kinds = events.map((text) => text.replaceAll(/"[\w-]+"/g, "K").replaceAll(/\d+/g, "N"));
    assert.deepEqual(kinds, [
      "one key: K",
      "caches may serve this set for N s",
      "first token with kid K",
      "key added: kid K",
      "caches may serve this set for N s",
      "the document has changed, but its keys have not",
      "first token with kid K",
      "key withdrawn: kid K",
      "caches may serve this set for N s",
    ]);
  });

  test("finds nothing during a minute in rotation mode", async () => {
    const { codes } = await found(60 * second, async (world, { manager }) => {
      await world.until(manager.execute({ type: "announce", key: await world.until(manager.makeKey("sig")) }));
    });
    assert.deepEqual(codes, []);
  });

  test("detects that the provider starts signing with the next key immediately", async () => {
    const { codes } = await found(4 * hour, async (world, { manager }) => {
      const key = await world.until(manager.makeKey("sig"));
      await world.until(manager.execute({ type: "rotate", use: "sig", key, now: true }));
    });
    assert.deepEqual(codes, ["WATCH_SIGNS_UNANNOUNCED"]);
  });
});

const insecure = "--allow-insecure";
const silent = async (t: TestContext, url: string, ...flags: string[]): Promise<string> => {
  const { code, stdout, stderr } = await runCli(t, ["doctor", url, insecure, ...flags]);
  assert.deepEqual([code, stderr], [0, ""], stdout);
  assert.match(
    stdout,
    /no problems found\. Checked as an? (issuer|JWK Set): \d keys?, HTTP in 1\d requests(, discovery)?\.\n\nKey rotation:\n/,
  );
  return stdout;
};

describe("when run against jwksd serve, the doctor", () => {
  test("reports no problems with managed keys, before and during a rotation, with and without --watch", async (t) => {
    const data = join(await temporaryFolder(t), "data");
    const { port } = await startService(t, ["--data", data]);
    const url = `http://127.0.0.1:${port}`;
    await silent(t, url);
    const watching = silent(t, url, "--watch", "3s");
    assert.equal((await runCli(t, ["rotate", "--data", data])).code, 0);
    assert.match(await watching, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC {2}key added: kid "[\w-]+"$/m);
    await silent(t, url);
    await silent(t, `${url}/jwks`);
  });

  test("finds nothing with keys from a file", async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, "keys.json"), keySetText("active", "retiring"), { mode: 0o600 });
    const { port } = await startService(t, ["--keys", join(folder, "keys.json"), "--mount-prefix", "/oidc"]);
    await silent(t, `http://127.0.0.1:${port}`);
  });
});
