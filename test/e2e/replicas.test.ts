import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import type { Lease } from "../../src/rotation/store/store.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { getOnce, kidsIn } from "../support/load.ts";
import { lockStore } from "../support/locked.ts";
import {
  type Finished,
  type RunningService,
  eventually,
  keySetText,
  runCli,
  startService,
  temporaryFolder,
} from "../support/service.ts";

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

/** A store with one key and no service, and replicas that do what a test says. */
async function withReplicas(t: TestContext) {
  const data = join(await temporaryFolder(t), "data");
  const file = `${data}.json`;
  await writeFile(file, keySetText("first"));
  const run = (...args: string[]): Promise<Finished> => runCli(t, [...args, "--data", data]);
  assert.equal((await run("keys", "import", file)).code, 0);
  const store = await sqliteStore(join(data, "keys.db"));
  t.after(() => store.close());
  return {
    store,
    run,
    /** Joins as `name`, and has published what there is. */
    join: async (name: string, signsWith: readonly string[] = []) => {
      const id = crypto.randomUUID();
      await store.join({ id, name }, 3_600_000);
      const publish = async (): Promise<void> => {
        const { revision } = await store.load();
        await store.renew({ id, publishes: revision, signsWith }, 3_600_000);
      };
      await publish();
      return { publish };
    },
    /** Resolves when the store is at another revision than it was. */
    changed: async (): Promise<void> => {
      const { revision } = await store.load();
      await eventually("a change", async () => (await store.load()).revision !== revision);
    },
  };
}

interface ReplicaJson {
  readonly id: string;
  readonly name: string;
  readonly behind: number;
  readonly signsWith: readonly string[];
  readonly lastSeenAt: string;
  readonly until: string;
}

interface Listed {
  readonly replicas: readonly ReplicaJson[];
  readonly waits: readonly {
    readonly kid: string;
    readonly use: string;
    readonly action: string;
    readonly replicas: readonly string[];
  }[];
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
      await service.logged(({ msg }) => msg.startsWith("this replica does not sign, because its lease has ended"));
      await eventually("it is not ready", async () => (await ready()).status === 503);
      assert.match(
        (await ready()).text,
        /^not ready: this replica does not sign, because its lease has ended.*ERR_STORE_UNAVAILABLE\n$/,
      );
      const reply = await getOnce(service.port);
      assert.deepEqual(kidsIn(reply), served);
      assert.equal(reply.headers["cache-control"], "public, max-age=300, must-revalidate");
    } finally {
      release();
    }
    await service.logged(({ msg }) => msg === "keys are managed again");
    await eventually("it is ready again", async () => (await ready()).status === 200);
  });

  test("is ready with --ready-without-store", async (t) => {
    const { path, service, ready } = await startReplica(t, [...shortLease, "--ready-without-store"]);
    const release = lockStore(path);
    try {
      await service.logged(({ msg }) => msg.startsWith("this replica does not sign, because its lease has ended"));
      assert.equal((await ready()).status, 200);
    } finally {
      release();
    }
  });
});

describe("a command that changes keys waits for the replicas", { timeout: 60_000, concurrency: true }, () => {
  test("until every one publishes the change", async (t) => {
    const { run, join, changed } = await withReplicas(t);
    const [a, b] = [await join("a"), await join("b")];
    const rotated = run("rotate", "--wait", "30");
    await changed();
    await a.publish();
    await b.publish();
    const { code, stdout } = await rotated;
    assert.equal(code, 0);
    assert.match(stdout, /\n\nReplicas:\n {2}- 2 of 2 publish the change\.\n$/);
  });

  test("and says who is missing, and what that means; the exit code is 3, and the change is done", async (t) => {
    const { run, join, store } = await withReplicas(t);
    await join("a b", ["first"]);
    const { code, stdout, stderr } = await run("rotate", "--now", "--yes", "--wait", "1");
    assert.deepEqual({ code, stderr }, { code: 3, stderr: "" });
    const said = stdout.replaceAll(/\s+/g, " ");
    assert.match(
      said,
      /Replicas: - 0 of 1 publish the change\. - Replica "a b", last seen \d s ago, may serve the previous keys, and sign with "first", until \d{4}-[\d-]+ [\d:]+ UTC at most\. $/,
    );
    assert.equal((await store.load()).records.find(({ kid }) => kid === "first")?.state, "retiring");
  });

  test("also when a key was revoked, and then says that tokens fail", async (t) => {
    const { run, join } = await withReplicas(t);
    await join("a", ["first"]);
    const { code, stdout } = await run("keys", "revoke", "first", "--yes", "--wait", "1");
    assert.equal(code, 3);
    assert.match(
      stdout.replaceAll(/\s+/g, " "),
      /and sign with "first", until .* Verifiers with the new set refuse such tokens\./,
    );
  });

  test("--json has those who are missing", async (t) => {
    const { run, join } = await withReplicas(t);
    await join("a");
    const { code, stdout } = await run("rotate", "--json", "--wait", "1");
    const { replicas } = JSON.parse(stdout) as { replicas: { count: number; late: ReplicaJson[] } };
    assert.equal(code, 3);
    assert.deepEqual([replicas.count, replicas.late.map(({ name, behind }) => [name, behind])], [1, [["a", 1]]]);
  });

  test("--wait 0 waits for none, nor does what changes nothing; without replicas nothing is said", async (t) => {
    const { run, join } = await withReplicas(t);
    const alone = await run("rotate");
    assert.deepEqual([alone.code, alone.stdout.includes("Replicas:")], [0, false]);
    await join("a");
    const [unwaited, dry] = [await run("rotate", "--now", "--yes", "--wait", "0"), await run("rotate", "--dry-run")];
    for (const { code, stdout } of [unwaited, dry]) assert.deepEqual([code, stdout.includes("Replicas:")], [0, false]);
    assert.match((await run("rotate", "--wait", "-1")).stderr, /Not a whole number of seconds/);
  });
});

describe("what a step waits for", { timeout: 60_000 }, () => {
  test("jwksd replicas lists them; keys and plan name those who hold up a step", async (t) => {
    const { run, join } = await withReplicas(t);
    await join("a");
    const late = await join("b in Zürich", ["first"]);
    const list = async (): Promise<Listed> => JSON.parse((await run("replicas", "--json")).stdout) as Listed;
    const before = await list();
    assert.deepEqual(before.waits, []);
    assert.equal((await run("rotate", "--wait", "0")).code, 0);
    const { replicas, waits } = await list();
    const kid = waits[0]?.kid ?? "";
    assert.deepEqual(
      replicas.map(({ name, behind, signsWith }) => [name, behind, signsWith]),
      [
        ["a", 1, []],
        ["b in Zürich", 1, ["first"]],
      ],
    );
    const ids = replicas.map(({ id }) => id);
    assert.partialDeepStrictEqual(waits, [{ use: "sig", action: "activated", replicas: ids }]);
    for (const { lastSeenAt, until } of replicas) assert.equal(Date.parse(until) - Date.parse(lastSeenAt), 3_600_000);
    const { stdout: table } = await run("replicas");
    assert.match(
      table,
      /^REPLICA +PUBLISHES +LAST SEEN +RELIED ON UNTIL\na +1 revision behind +.* ago +\d{4}-.* UTC, in .*\n {2}signs with nothing\n/,
    );
    assert.ok(
      table.includes(`\n  signs with first\n  sig ${kid} waits for this replica, then becomes active\n`),
      table,
    );
    for (const command of ["keys", "plan", "replicas"]) {
      const said = (await run(command)).stdout.replaceAll(/\s+/g, " ");
      assert.ok(
        said.includes(
          `Signing key "${kid}" becomes active 1 d after every replica publishes it. This wait has not begun.`,
        ),
        said,
      );
      assert.match(
        said,
        /It waits for replica "a", last seen .*; replica "b in Zürich", last seen \d+ s ago, at most until \d{4}-.* UTC\./,
      );
    }
    await late.publish();
    const after = await list();
    assert.deepEqual(after.waits[0]?.replicas, ids.slice(0, 1));
  });

  test("without any, it says so", async (t) => {
    const { run } = await withReplicas(t);
    assert.equal((await run("rotate")).code, 0);
    assert.match(
      (await run("keys")).stdout.replaceAll(/\s+/g, " "),
      /No replica runs, so this wait has not begun; jwksd serve is one\./,
    );
    assert.match((await run("replicas")).stdout, /^No replica runs\.\n/);
  });
});

/** A store that nobody else can use now, and the set that a service has saved before. */
async function stopped(t: TestContext, ...args: readonly string[]) {
  const { data, path, service } = await startReplica(t, args);
  const served = kidsIn(await getOnce(service.port));
  await service.stop();
  const release = lockStore(path);
  let isLocked = true;
  const unlock = (): void => {
    if (isLocked) release();
    isLocked = false;
  };
  t.after(unlock);
  return { data, served, unlock, keptFile: join(data, "saved-set.json") };
}

describe("a start without the store", { timeout: 90_000, concurrency: true }, () => {
  test("publishes the saved set and is not ready; with the store it goes on as usual", async (t) => {
    const { data, served, unlock } = await stopped(t);
    const { service, ready } = await startReplica(t, [], data);
    const line = service.log.find(({ msg }) => msg.startsWith("the saved set is published"));
    assert.equal(line?.["code"], "ERR_STORE_UNAVAILABLE");
    const reply = await getOnce(service.port);
    assert.deepEqual(kidsIn(reply), served);
    assert.equal(reply.headers["cache-control"], "public, max-age=300, must-revalidate");
    const { status, text } = await ready();
    assert.equal(status, 503);
    assert.match(text, /^not ready: the store was not reached since the start; the set is of \d{4}-.* UTC\n$/);
    unlock();
    await service.logged(({ msg }) => msg === "the store is back, and its keys are published");
    await eventually("it is ready", async () => (await ready()).status === 200);
    assert.equal((await runCli(t, ["rotate", "--data", data, "--wait", "20"])).code, 0);
    const after = await getOnce(service.port);
    assert.equal(kidsIn(after).length, 2);
  });

  test("can be ended while it waits for the store, and is ready with --ready-without-store", async (t) => {
    const { data } = await stopped(t);
    const { service, ready } = await startReplica(t, ["--ready-without-store"], data);
    assert.equal((await ready()).status, 200);
    assert.equal(await service.stop(), 0);
  });

  test("fails where the set is damaged, of another issuer or too old, or where it is switched off", async (t) => {
    const issuer = ["--issuer", "https://a.example"];
    const { data, keptFile } = await stopped(t, ...issuer);
    const refusedBy = async (says: RegExp, ...args: readonly string[]): Promise<void> => {
      await assert.rejects(startReplica(t, args, data), (error: Error & { code?: string }) => {
        assert.equal(error.code, "ERR_STORE_UNAVAILABLE");
        assert.match(error.message, says);
        return true;
      });
    };
    const text = await readFile(keptFile, "utf8");
    await Promise.all([
      refusedBy(/saved-set\.json is not used: it is of issuer "https:\/\/a\.example"/, "--issuer", "https://b.example"),
      refusedBy(/^(?!.*saved-set)/, ...issuer, "--max-saved-set-seconds", "0"),
      // The store is waited for longer than that.
      refusedBy(/and 1 s are allowed \(--max-saved-set-seconds\)/, ...issuer, "--max-saved-set-seconds", "1"),
    ]);
    await writeFile(keptFile, text.replace(/"x": "...../, '"x": "AAAAA'));
    await refusedBy(/saved-set\.json is not used: its keys are others than those of its MAC/, ...issuer);
  });
});
