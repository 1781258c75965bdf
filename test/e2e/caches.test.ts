import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import type { RequestOptions } from "node:http";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { type Answer, type Cache, nginx, send, varnish } from "../support/caches.ts";
import { type RecordedOrigin, recordOrigin } from "../support/caches-origin.ts";
import { named } from "../support/keys.ts";
import { skipWithout } from "../support/parts.ts";
import { startService, temporaryFolder } from "../support/service.ts";

/** Longer than the lifetime of what a short-lived cache holds. */
const deadline = { timeout: 10_000 };

const options = ({ program }: Cache) => ({ skip: skipWithout(program), timeout: 120_000, concurrency: 4 });

for (const cache of [nginx, varnish]) {
  describe(`behind ${cache.name}`, options(cache), () => {
    test("the second request is a hit with the origin's bytes and header fields", async (t) => {
      const { ask, askService, origin } = await start(t, cache);
      const direct = withoutHopFields(await askService());
      for (const expected of ["MISS", "HIT"]) {
        const reply = await ask();
        assert.equal(reply.headers["x-cache"], expected);
        assert.partialDeepStrictEqual(reply, direct);
      }
      assert.equal(origin.exchanges.length, 1);
    });

    if (cache.sendsAge) {
      test("a hit says its Age", async (t) => {
        const { ask, origin } = await start(t, cache);
        await ask();
        await t.waitFor(async () => assert.ok(Number((await ask()).headers.age) >= 1), deadline);
        assert.equal(origin.exchanges.length, 1);
      });
    }

    for (const { mode, args, freshSeconds, staleSeconds } of [
      { mode: "long", args: [], freshSeconds: 3600, staleSeconds: 3600 },
      { mode: "rotation", args: ["--rotation-mode"], freshSeconds: 300, staleSeconds: undefined },
    ]) {
      test(`the document is stored for as long as Cache-Control of the ${mode} mode says`, async (t) => {
        const { ask, cacheLifetime } = await start(t, cache, { args });
        await ask();
        assert.equal((await ask()).headers["x-cache"], "HIT");
        const lifetime = await cacheLifetime();
        assert.equal(lifetime.freshSeconds, freshSeconds);
        // Rotation mode says nothing of stale copies, and caches have defaults of their own.
        if (staleSeconds !== undefined) assert.equal(lifetime.staleSeconds, staleSeconds);
      });
    }

    test("an expired document is revalidated: the origin answers 304, the client gets the document", async (t) => {
      const { ask, origin } = await start(t, cache, { shortLived: true });
      const first = await ask();
      const again = await t.waitFor(async () => {
        const reply = await ask();
        assert.ok(origin.exchanges.length > 1, "not expired yet");
        return reply;
      }, deadline);
      assert.partialDeepStrictEqual(again, { status: 200, headers: { etag: first.headers.etag }, body: first.body });
      assertRevalidated(origin, first, 304);
    });

    test("an expired document that a rotation has changed is revalidated: the origin answers 200", async (t) => {
      const { ask, askService, rotate, origin } = await start(t, cache, { shortLived: true });
      const first = await ask();
      await rotate();
      const direct = withoutHopFields(await askService());
      await t.waitFor(async () => assert.partialDeepStrictEqual(await ask(), direct), deadline);
      assertRevalidated(origin, first, 200);
    });

    test("a rotation reaches at once who asks with no-cache, and from then on everybody", async (t) => {
      const { ask, rotate } = await start(t, cache);
      const before = await ask();
      await rotate();
      assert.deepEqual(kids(await ask()), kids(before));
      assert.deepEqual(kids(await ask({ headers: { "Cache-Control": "no-cache" } })), ["next", "active"]);
      const after = await ask();
      assert.equal(after.headers["x-cache"], "HIT");
      assert.deepEqual(kids(after), ["next", "active"]);
    });

    test("a ranged hit is the exact slice", async (t) => {
      const { ask, origin } = await start(t, cache);
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
      assert.equal(origin.exchanges.length, 1);
    });

    test("HEAD and If-None-Match are answered from what GET has stored", async (t) => {
      const { ask, askService, origin } = await start(t, cache);
      const direct = withoutHopFields(await askService());
      await ask();
      const head = await ask({ method: "HEAD" });
      assert.equal(head.headers["x-cache"], "HIT");
      assert.partialDeepStrictEqual(head, { ...direct, body: "" });
      const conditional = await ask({ headers: { "If-None-Match": direct.headers.etag } });
      assert.deepEqual([conditional.status, conditional.body], [304, ""]);
      assert.equal(origin.exchanges.length, 1);
    });
  });
}

/** The service, a record of what reaches it, and the cache in front. */
async function start(
  t: TestContext,
  cache: Cache,
  { shortLived = false, args = [] }: { shortLived?: boolean; args?: string[] } = {},
) {
  const keys = join(await temporaryFolder(t), "keys.json");
  const write = (...kids: string[]) =>
    writeFile(keys, JSON.stringify({ keys: kids.map((kid) => named(kid)) }), { mode: 0o600 });
  await write("active", "retiring");
  const service = await startService(t, ["--keys", keys, ...args]);
  const origin = await recordOrigin(t, service.port);
  const running = await cache.start(t, { originPort: origin.port, shortLived });
  return {
    origin,
    cacheLifetime: () => running.lifetime(),
    ask: (options?: RequestOptions) => send(running.socketPath, { path: "/jwks", ...options }),
    askService: () => send(service.port, { path: "/jwks" }),
    rotate: async () => {
      await write("next", "active");
      await service.logged(({ msg }) => msg === "keys reloaded");
    },
  };
}

/** What a cache has to hand on unchanged. */
function withoutHopFields({ status, headers, body }: Answer) {
  const { connection: _connection, "keep-alive": _keepAlive, date: _date, ...rest } = headers;
  return { status, headers: rest, body };
}

/** The second request to the origin carried the first answer's ETag. */
function assertRevalidated({ exchanges }: RecordedOrigin, first: Answer, status: number): void {
  const [fetched, revalidated] = exchanges;
  assert.equal(fetched?.status, 200);
  assert.match(revalidated?.request ?? "", new RegExp(`^if-none-match: ${first.headers.etag}\r$`, "im"));
  assert.equal(revalidated?.status, status);
}

function kids({ body }: Answer): string[] {
  return (JSON.parse(body) as { keys: { kid: string }[] }).keys.map(({ kid }) => kid);
}
