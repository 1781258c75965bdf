import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import type { RequestOptions } from "node:http";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Answer, type Cache, type RunningCache, nginx, send, varnish } from "../support/caches.ts";
import { named } from "../support/keys.ts";
import { skipWithout } from "../support/parts.ts";
import { type Scope, startService, temporaryFolder } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import { type Exchange, recordOrigin } from "./caches-origin.ts";

/** Longer than the lifetime of documents in a short-lived cache. */
const deadline = { timeout: 10_000 };

const options = ({ program }: Cache) => ({ skip: skipWithout(program), timeout: 120_000, concurrency: 4 });

// Each start of Varnish compiles its configuration.
for (const cache of isSoak ? [nginx, varnish] : [nginx]) {
  describe(`behind ${cache.name}`, options(cache), () => {
    describe("with the long Cache-Control", { concurrency: 1 }, () => {
      const newClient = startFor(cache);

      test("answers the second request from the cache, with the origin's bytes and headers", async () => {
        const { ask, askService, exchanges } = newClient();
        const direct = withoutHopFields(await askService());
        for (const expected of ["MISS", "HIT"]) {
          const reply = await ask();
          assert.equal(reply.headers["x-cache"], expected);
          assert.partialDeepStrictEqual(reply, direct);
        }
        assert.equal(exchanges().length, 1);
      });

      if (cache.sendsAge) {
        test("sends an Age header with a hit", async (t) => {
          const { ask, exchanges } = newClient();
          await ask();
          await t.waitFor(async () => assert.ok(Number((await ask()).headers.age) >= 1), deadline);
          assert.equal(exchanges().length, 1);
        });
      }

      test("caches the document for as long as Cache-Control allows", async () => {
        const { ask, cacheLifetime } = newClient();
        await ask();
        assert.equal((await ask()).headers["x-cache"], "HIT");
        assert.deepEqual(await cacheLifetime(), { freshSeconds: 3600, staleSeconds: 3600 });
      });

      test("a cache hit for a range request returns exactly that slice of the document", async () => {
        const { ask, exchanges } = newClient();
        const { body } = await ask();
        const size = body.length;
        for (const [range, from, to] of [
          ["5-24", 5, 24],
          ["100-", 100, size - 1],
          ["-7", size - 7, size - 1],
        ] as const) {
          const reply = await ask({ headers: { Range: `bytes=${range}` } });
          assert.deepEqual([reply.status, reply.headers["x-cache"]], [206, "HIT"]);
          assert.equal(reply.headers["content-range"], `bytes ${from}-${to}/${size}`);
          assert.equal(reply.body, body.slice(from, to + 1));
        }
        assert.equal(exchanges().length, 1);
      });

      test("serves HEAD requests and requests with If-None-Match from the stored GET response", async () => {
        const { ask, askService, exchanges } = newClient();
        const direct = withoutHopFields(await askService());
        await ask();
        const head = await ask({ method: "HEAD" });
        assert.equal(head.headers["x-cache"], "HIT");
        assert.partialDeepStrictEqual(head, { ...direct, body: "" });
        const conditional = await ask({ headers: { "If-None-Match": direct.headers.etag } });
        assert.deepEqual([conditional.status, conditional.body], [304, ""]);
        assert.equal(exchanges().length, 1);
      });

      test("a request with no-cache gets a rotated document immediately, and so do later requests", async () => {
        const { ask, rotate } = newClient();
        const before = await ask();
        await rotate();
        assert.deepEqual(kids(await ask()), kids(before));
        assert.deepEqual(kids(await ask({ headers: { "Cache-Control": "no-cache" } })), ["next", "active"]);
        const after = await ask();
        assert.equal(after.headers["x-cache"], "HIT");
        assert.deepEqual(kids(after), ["next", "active"]);
      });
    });

    describe("in rotation mode", () => {
      const newClient = startFor(cache, { args: ["--rotation-mode"] });

      test("caches the document for as long as Cache-Control allows", async () => {
        const { ask, cacheLifetime } = newClient();
        await ask();
        assert.equal((await ask()).headers["x-cache"], "HIT");
        // It does not mention stale responses, and caches have their own defaults.
        assert.equal((await cacheLifetime()).freshSeconds, 300);
      });
    });

    describe("with documents that expire soon", { concurrency: 1 }, () => {
      const newClient = startFor(cache, { shortLived: true });

      test("revalidates an expired document: the origin returns 304, and the client gets the document", async (t) => {
        const { ask, exchanges } = newClient();
        const first = await ask();
        const again = await t.waitFor(async () => {
          const reply = await ask();
          assert.ok(exchanges().length > 1, "not expired yet");
          return reply;
        }, deadline);
        assert.partialDeepStrictEqual(again, { status: 200, headers: { etag: first.headers.etag }, body: first.body });
        assertRevalidated(exchanges(), first, 304);
      });

      test("revalidates an expired document that a rotation has changed: the origin returns 200", async (t) => {
        const { ask, askService, rotate, exchanges } = newClient();
        const first = await ask();
        await rotate();
        const direct = withoutHopFields(await askService());
        await t.waitFor(async () => assert.partialDeepStrictEqual(await ask(), direct), deadline);
        assertRevalidated(exchanges(), first, 200);
      });
    });
  });
}

/**
 * Starts the service, a recorder in front of it, and the cache, once for all tests of a suite, because Varnish compiles its configuration at
 * each start. The last test may rotate. Returns a function that returns a client for a URL that was not requested before.
 */
function startFor(cache: Cache, options: StartOptions = {}): () => CacheClient {
  const scope: (() => Promise<void>)[] = [];
  let clientFor: (path: string) => CacheClient;
  let urls = 0;
  before(async () => {
    clientFor = await start({ after: (end) => void scope.unshift(end) }, cache, options);
  });
  after(async () => {
    for (const end of scope) await end();
  });
  return () => clientFor(`/jwks?${(urls += 1)}`);
}

interface StartOptions {
  readonly shortLived?: boolean;
  readonly args?: readonly string[];
}

interface CacheClient {
  /** Returns the exchanges with the origin. */
  readonly exchanges: () => readonly Exchange[];
  readonly cacheLifetime: () => ReturnType<RunningCache["lifetime"]>;
  readonly ask: (options?: RequestOptions) => Promise<Answer>;
  readonly askService: () => Promise<Answer>;
  readonly rotate: () => Promise<void>;
}

async function start(t: Scope, cache: Cache, { shortLived = false, args = [] }: StartOptions) {
  const keys = join(await temporaryFolder(t), "keys.json");
  const write = (...kids: string[]) =>
    writeFile(keys, JSON.stringify({ keys: kids.map((kid) => named(kid)) }), { mode: 0o600 });
  await write("active", "retiring");
  const service = await startService(t, ["--keys", keys, ...args]);
  const origin = await recordOrigin(t, service.port);
  const running = await cache.start(t, { originPort: origin.port, shortLived });
  return (path: string): CacheClient => ({
    exchanges: () => origin.exchanges.filter(({ request }) => request.split(" ")[1] === path),
    cacheLifetime: () => running.lifetime(path),
    ask: (options) => send(running.socketPath, { path, ...options }),
    askService: () => send(service.port, { path }),
    rotate: async () => {
      await write("next", "active");
      await service.logged(({ msg }) => msg === "keys reloaded");
    },
  });
}

/** Returns the parts of a response that a cache must pass unchanged. */
function withoutHopFields({ status, headers, body }: Answer) {
  const { connection: _connection, "keep-alive": _keepAlive, date: _date, ...rest } = headers;
  return { status, headers: rest, body };
}

/** Checks that the second request to the origin had the first response's ETag. */
function assertRevalidated(exchanges: readonly Exchange[], first: Answer, status: number): void {
  const [fetched, revalidated] = exchanges;
  assert.equal(fetched?.status, 200);
  assert.match(revalidated?.request ?? "", new RegExp(`^if-none-match: ${first.headers.etag}\r$`, "im"));
  assert.equal(revalidated?.status, status);
}

function kids({ body }: Answer): string[] {
  return (JSON.parse(body) as { keys: { kid: string }[] }).keys.map(({ kid }) => kid);
}
