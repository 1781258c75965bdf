import assert from "node:assert/strict";
import { hostname } from "node:os";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import type { Lease } from "../../src/store/store.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import { getOnce, kidsIn } from "../support/load.ts";
import { lockStore } from "../support/locked.ts";
import { type RunningService, eventually, startService, temporaryFolder } from "../support/service.ts";

interface Replica {
  readonly data: string;
  readonly path: string;
  readonly service: RunningService;
  /** What `/readyz` says. */
  readonly ready: () => Promise<{ readonly status: number; readonly text: string }>;
}

async function startReplica(t: TestContext, args: readonly string[] = [], data?: string): Promise<Replica> {
  const folder = data ?? join(await temporaryFolder(t), "data");
  const service = await startService(t, ["--data", folder, "--admin", "127.0.0.1:0", ...args]);
  const { admin } = await service.logged(({ msg }) => msg === "started");
  return {
    data: folder,
    path: join(folder, "keys.db"),
    service,
    ready: async () => {
      const response = await fetch(new URL("/readyz", admin as string));
      return { status: response.status, text: await response.text() };
    },
  };
}

async function leasesOf(path: string): Promise<readonly Lease[]> {
  const store = await sqliteStore(path);
  const { leases } = await store.load();
  await store.close();
  return leases;
}

const shortLease = ["--lease-seconds", "2"];

describe("the name of a replica", { timeout: 60_000 }, () => {
  test("is that of the host, or the one that is given", async (t) => {
    const { data, path } = await startReplica(t);
    await startReplica(t, ["--replica-name", "b in Zürich"], data);
    const leases = await leasesOf(path);
    assert.deepEqual(
      leases.map(({ name }) => name),
      [hostname(), "b in Zürich"],
    );
    assert.ok(leases.every(({ publishes, signsWith }) => publishes > 0 && signsWith.length === 0));
  });

  for (const name of ["", "x".repeat(256), "two\nlines"]) {
    test(`is not ${JSON.stringify(name.slice(0, 12))}`, async (t) => {
      await assert.rejects(startReplica(t, ["--replica-name", name]), { code: "ERR_OPTION_INVALID" });
    });
  }
});

describe("a replica whose lease has ended", { timeout: 60_000, concurrency: true }, () => {
  test("is not ready, says why, logs it, and serves all the same; with the store it is ready again", async (t) => {
    const { path, service, ready } = await startReplica(t, shortLease);
    assert.deepEqual(await ready(), { status: 200, text: "ok\n" });
    const served = kidsIn(await getOnce(service.port));
    const release = lockStore(path);
    try {
      await eventually("it is not ready", async () => (await ready()).status === 503);
      await service.logged(({ msg }) => msg.startsWith("the lease of this replica has ended"));
      assert.match(
        (await ready()).text,
        /^not ready: the other replicas do not rely on this one.*ERR_STORE_UNAVAILABLE\n$/,
      );
      const reply = await getOnce(service.port);
      assert.deepEqual(kidsIn(reply), served);
      assert.equal(reply.headers["cache-control"], "public, max-age=300, must-revalidate");
    } finally {
      release();
    }
    await eventually("it is ready again", async () => (await ready()).status === 200, 40_000);
    assert.ok(service.log.some(({ msg }) => msg === "keys are managed again"));
  });

  test("is ready with --ready-without-store", async (t) => {
    const { path, service, ready } = await startReplica(t, [...shortLease, "--ready-without-store"]);
    const release = lockStore(path);
    try {
      await service.logged(({ msg }) => msg.startsWith("the lease of this replica has ended"));
      assert.equal((await ready()).status, 200);
    } finally {
      release();
    }
  });
});
