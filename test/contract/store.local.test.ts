import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, test } from "node:test";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { type RegisterUnderTest, defineRegisterTests } from "../../src/testing/register-tests.ts";
import { checkTooLarge } from "../support/faults.ts";
import { listening } from "../support/listening.ts";
import { sample } from "../support/samples.ts";
import { temporaryFolder } from "../support/service.ts";

defineRegisterTests("memory", async () => {
  const registers = new Map<string, Register>();
  return {
    async handle(issuer) {
      const register = registers.get(issuer) ?? memoryStore();
      registers.set(issuer, register);
      return register;
    },
  };
});

const sqlite = async (): Promise<RegisterUnderTest> => {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-test-"));
  return {
    handle: (issuer) => sqliteStore(join(folder, encodeURIComponent(issuer))),
    end: () => rm(folder, { recursive: true }),
  };
};
defineRegisterTests("sqlite", sqlite);
checkTooLarge("sqlite", sqlite);

const own = await sample({ after }, "examples/docs/store-own.mts");
const { httpStore } = (await import(own)) as { httpStore: (url: string) => Register };
test("the custom store in docs/stores.md rejects a response without a Date header", async (t) => {
  const server = createServer((_, response) => {
    response.sendDate = false;
    response.writeHead(404).end();
  });
  const store = httpStore(`http://127.0.0.1:${await listening(t, server)}/`);
  await assert.rejects(store.read(), /returned no Date header/);
});

const module = (path: string): string => JSON.stringify(import.meta.resolve(`../../src/${path}`));

test("defineRegisterTests detects a wrong time and a list that ignores its limit", async (t) => {
  const file = join(await temporaryFolder(t), "wrong.test.mjs");
  await writeFile(
    file,
    `import { memoryStore } from ${module("rotation/store/memory.ts")};
    import { defineRegisterTests } from ${module("testing/register-tests.ts")};
    const wrong = (change) => async () => {
      const store = memoryStore();
      return { handle: () => ({ ...store, ...change(store) }) };
    };
    for (const now of [() => NaN, () => new Date().toISOString(), () => new Date(), () => null])
      defineRegisterTests(\`time \${now}\`, wrong(({ read }) => ({ read: async (...call) => ({ ...(await read(...call)), now: now() }) })));
    defineRegisterTests("list", wrong(({ presence }) => ({ presence: { ...presence, list: () => presence.list(Infinity) } })));`,
  );
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const args = ["--test", "--test-reporter=tap", "--test-name-pattern", "clock|limit", file];
  const child = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "ignore"] });
  const failed = [...(await text(child.stdout)).matchAll(/^ +not ok \d+ - (.*)$/gm)].map(([, title]) => title);
  const clock = "has a clock that advances and is not the caller's";
  const limit = "lists presence records up to a limit on their number and length, and counts them all";
  assert.deepEqual(failed, [clock, clock, clock, clock, limit]);
});

defineRegisterTests("the custom store in docs/stores.md", async () => {
  const documents = new Map<string, string>();
  const server = createServer(async (request, response) => {
    const { url = "", method, headers } = request;
    const body = method === "PUT" ? await text(request) : "";
    const found = documents.get(url);
    const tag = found === undefined ? undefined : `"${createHash("sha256").update(found).digest("hex")}"`;
    if (method === "PUT") {
      const isCurrent = headers["if-none-match"] === "*" ? tag === undefined : tag === headers["if-match"];
      if (isCurrent) documents.set(url, body);
      response.writeHead(isCurrent ? 204 : 412).end();
    } else if (tag === undefined) response.writeHead(404).end();
    else if (headers["if-none-match"] === tag) response.writeHead(304).end();
    else response.writeHead(200, { ETag: tag }).end(found);
  });
  const ends: (() => Promise<void>)[] = [];
  const port = await listening({ after: (end) => void ends.push(end) }, server);
  return {
    handle: async (issuer) => httpStore(`http://127.0.0.1:${port}/${encodeURIComponent(issuer)}`),
    end: async () => ends[0]?.(),
  };
});
