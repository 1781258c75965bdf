import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type TestContext, describe, test } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { type PresenceRecord, presenceText } from "../../src/rotation/custody/presence-records.ts";
import { createStoreAccess } from "../../src/rotation/manager/store-access.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { getOnce, kidsIn } from "../support/load.ts";
import { custodyOf, documentOf, wrappingKeyOf } from "../support/managed.ts";
import { startWithAdmin } from "../support/scrape.ts";
import { type Finished, eventually, keySetText, runCli, temporaryFolder } from "../support/service.ts";
import { presenceRecord } from "../support/store-view.ts";

/** Blocks all other writers of a SQLite store. Returns a function that releases it. */
function lockStore(path: string): () => void {
  const db = new DatabaseSync(path, { timeout: 5_000 });
  db.exec("BEGIN IMMEDIATE");
  return () => {
    db.exec("ROLLBACK");
    db.close();
  };
}

async function startReplica(t: TestContext, args: readonly string[] = [], data?: string) {
  const folder = data ?? join(await temporaryFolder(t), "data");
  return { data: folder, path: join(folder, "keys.db"), ...(await startWithAdmin(t, "--data", folder, ...args)) };
}

/** Prepares a store with one key and no service, and functions that write presence records. */
async function withReplicas(t: TestContext) {
  const data = join(await temporaryFolder(t), "data");
  const file = `${data}.json`;
  await writeFile(file, keySetText("first"));
  const run = (...args: string[]): Promise<Finished> => runCli(t, [...args, "--data", data]);
  assert.equal((await run("keys", "import", file)).code, 0);
  const store = sqliteStore(join(data, "keys.db"));
  t.after(async () => store.close?.());
  return {
    data,
    store,
    run,
    /** Writes the presence record of a process that publishes the latest revision. */
    checkIn: async (name: string, overrides: Partial<PresenceRecord> = {}): Promise<void> => {
      const { revision, commits } = await documentOf(store);
      const line = presenceRecord(name, {
        kid: "first",
        revision,
        commit: commits.at(-1),
        at: Date.now(),
        ...overrides,
      });
      await store.presence?.put(name, presenceText(line));
    },
    /** Records a target that was never written. */
    addTarget: async (name: string): Promise<void> => {
      const custody = await custodyOf(store, [await wrappingKeyOf(data)]);
      const { signal } = new AbortController();
      const access = createStoreAccess(custody, { policy: rotationPolicy(), clock: systemClock, signal });
      await access.change(async ({ now }) => ({ targets: [{ name, revision: 0, at: now }] }));
    },
    /** Resolves when the store's version changes. */
    changed: async (): Promise<void> => {
      const { version } = await store.read();
      await eventually("a change", async () => (await store.read(version)).version !== version);
    },
  };
}

interface Listed {
  readonly replicas: readonly {
    readonly name: string;
    readonly behind?: number;
    readonly kid?: string;
    readonly lastCheckInAt: string;
    readonly staleAt: string;
  }[];
  readonly targets: readonly { readonly name: string; readonly revision: number; readonly isBehind: boolean }[];
  readonly unread: number;
  readonly waits: readonly { readonly action: string; readonly targets: readonly string[] }[];
}

const record = (name: string): string => presenceText(presenceRecord(name, { name: "a", at: Date.now() }));
const soonStale = ["--max-stale-seconds", "2"];
const stale = /^this process cannot sign at the moment: it has not checked in with its store/;

describe("a replica's name", { timeout: 60_000 }, () => {
  test("is the host name or the configured name", async (t) => {
    const { data } = await startReplica(t);
    await startReplica(t, ["--replica-name", "b in Zürich"], data);
    const { stdout } = await runCli(t, ["replicas", "--json", "--data", data]);
    const { replicas } = JSON.parse(stdout) as Listed;
    assert.deepEqual(new Set(replicas.map(({ name }) => name)), new Set([hostname(), "b in Zürich"]));
  });

  for (const name of ["", "x".repeat(256), "two\nlines"]) {
    test(`cannot be ${JSON.stringify(name.slice(0, 12))}`, async (t) => {
      await assert.rejects(startReplica(t, ["--replica-name", name]), { code: "ERR_OPTION_INVALID" });
    });
  }
});

describe("a stale process", { timeout: 60_000, concurrency: true }, () => {
  test("is not ready, logs and reports why, keeps serving, and is ready again when the store is back", async (t) => {
    const { path, service, ready } = await startReplica(t, soonStale);
    assert.equal(await ready(), "200 ok\n");
    const served = kidsIn(await getOnce(service.port));
    const release = lockStore(path);
    try {
      await service.logged(({ msg }) => stale.test(msg));
      await eventually("it is not ready", async () => (await ready()).startsWith("503"));
      assert.match(await ready(), /^503 not ready: this process cannot sign at the moment: it has not checked in/);
      const reply = await getOnce(service.port);
      assert.deepEqual(kidsIn(reply), served);
      assert.equal(reply.headers["cache-control"], "public, max-age=300, must-revalidate");
    } finally {
      release();
    }
    await eventually("it is ready again", async () => (await ready()).startsWith("200"));
  });

  test("is ready with --ready-without-store", async (t) => {
    const { path, service, ready } = await startReplica(t, [...soonStale, "--ready-without-store"]);
    const release = lockStore(path);
    try {
      await service.logged(({ msg }) => stale.test(msg));
      assert.match(await ready(), /^200/);
    } finally {
      release();
    }
  });
});

describe("a command that changes keys waits for the replicas", { timeout: 60_000, concurrency: true }, () => {
  test("until every one publishes the change", async (t) => {
    const { run, checkIn, changed } = await withReplicas(t);
    await checkIn("a");
    await checkIn("b");
    const rotated = run("rotate", "--wait", "30");
    await changed();
    await checkIn("a");
    await checkIn("b");
    const { code, stdout } = await rotated;
    assert.equal(code, 0);
    assert.match(stdout, /\n\nReplicas:\n {2}- 2 of 2 have caught up\.\n$/);
  });

  const replica =
    'Replica "a b", last check-in \\d s ago, may publish the previous keys and sign with "first" until .* at the latest\\.';
  for (const [command, says] of [
    ["rotate --now --yes", new RegExp(`Replicas: - 0 of 1 has caught up\\. - ${replica} $`)],
    ["keys revoke first --yes", new RegExp(`${replica} Verifiers with the new set reject its tokens\\.`)],
    ["rotate --json", /"count": 1, "late": \[ \{.*"name": "a b",.*"behind": 1\b/],
  ] as const) {
    test(`and then reports which replicas are missing and what the consequences are: ${command}`, async (t) => {
      const { run, checkIn, store } = await withReplicas(t);
      const { revision } = await documentOf(store);
      await checkIn("a b");
      const { code, stdout, stderr } = await run(...command.split(" "), "--wait", "1");
      assert.deepEqual({ code, stderr }, { code: 3, stderr: "" });
      assert.match(stdout.replaceAll(/\s+/g, " "), says);
      assert.equal((await documentOf(store)).revision, revision + 1);
    });
  }

  test("but not with --wait 0 or if nothing changed; the command does not mention replicas if there are none", async (t) => {
    const { run, checkIn } = await withReplicas(t);
    const alone = await run("rotate");
    assert.deepEqual([alone.code, alone.stdout.includes("Replicas:")], [0, false]);
    await checkIn("a");
    const [unwaited, dry] = [await run("rotate", "--now", "--yes", "--wait", "0"), await run("rotate", "--dry-run")];
    for (const { code, stdout } of [unwaited, dry]) assert.deepEqual([code, stdout.includes("Replicas:")], [0, false]);
    assert.match((await run("rotate", "--wait", "-1")).stderr, /Must be a whole number of seconds/);
  });
});

describe("jwksd replicas", { timeout: 60_000 }, () => {
  test(`lists a store's processes and targets; "jwksd keys" and "jwksd plan" name any target that blocks a step`, async (t) => {
    const { run, checkIn, addTarget } = await withReplicas(t);
    await checkIn("a", { version: "1.2.3" });
    await checkIn("b in Zürich", { kid: undefined, signs: false });
    await checkIn("dead", { at: Date.now() - 3_600_000 });
    const target = "s3://bucket/cluster-1";
    await addTarget(target);
    assert.equal((await run("rotate", "--wait", "0")).code, 0);

    const list = async (): Promise<Listed> => JSON.parse((await run("replicas", "--json")).stdout) as Listed;
    const { replicas, targets, waits } = await list();
    assert.deepEqual(
      replicas.map(({ name, kid }) => [name, kid]),
      [
        ["a", "first"],
        ["b in Zürich", undefined],
      ],
    );
    for (const { lastCheckInAt, staleAt } of replicas)
      assert.equal(Date.parse(staleAt) - Date.parse(lastCheckInAt), 3_600_000);
    assert.partialDeepStrictEqual(targets, [{ name: target, revision: 0, isBehind: true }]);
    assert.partialDeepStrictEqual(waits, [{ action: "activated", targets: [target] }]);
    const { stdout: table } = await run("replicas");
    assert.match(
      table,
      /^REPLICA +PUBLISHES +LAST CHECK-IN +SIGNS +VERSION\na +\d revisions behind +.* ago +signs with first +1\.2\.3\n/,
    );
    assert.match(table, /^b in Zürich .* publishes only; it is not set up to sign$/m);
    assert.match(table, /^TARGET +HAS +READ BACK\n.* not written yet, behind +.* ago$/m);
    for (const command of ["keys", "plan", "replicas"]) {
      const output = (await run(command)).stdout.replaceAll(/\s+/g, " ");
      assert.ok(
        output.includes(
          `which has not begun. Target "${target}" has not received the latest change to the key; update it`,
        ),
        output,
      );
    }

    assert.match((await run("targets", "forget", target)).stderr, /confirm with --yes \[ERR_CONFIRMATION\]\n$/);
    assert.match(
      (await run("targets", "forget", target, "--yes")).stdout,
      /^Removed target .*; steps no longer wait for it/,
    );
    assert.deepEqual((await list()).targets, []);
    assert.match((await run("targets", "forget", "a", "--yes")).stderr, /no target with this name.*\[ERR_TRANSITION\]/);
  });

  test("the forget command removes the presence record of an exited process, given its name or id", async (t) => {
    const { run, checkIn, store } = await withReplicas(t);
    const ids = { old: "0d1f0c5e-aaaa", new: "7b3e9a21-bbbb", other: "c4d0e5f6-cccc" };
    await checkIn(ids.old, { name: "login-2", revision: 7, at: Date.now() - 60_000 });
    await checkIn(ids.new, { name: "login-2" });
    await checkIn(ids.other, { name: "login-3", revision: 7 });
    assert.match((await run("replicas")).stdout, /^login-2 \(0d1f0c5e\) +revision 7, which the store no longer has/m);
    assert.match(
      (await run("replicas", "forget", "login")).stderr,
      /no replica with this name or id.*\[ERR_TRANSITION\]/,
    );
    const twins = await run("replicas", "forget", "login-2");
    assert.match(twins.stderr, /2 replicas have this name; use one of these ids: 0d1f0c5e, 7b3e9a21;/);
    const removed = await run("replicas", "forget", "0d1f0c5e");
    assert.match(removed.stdout, /^Removed the presence record of login-2 \(last check-in 1 min( \d+ s)? ago\)\.\n$/);
    assert.equal((await run("replicas", "forget", "login-3")).code, 0);
    assert.deepEqual([...((await store.presence?.list(9))?.records.keys() ?? [])], [ids.new]);
  });

  test("shortens the columns of a long presence record and prints its id so that it can be removed", async (t) => {
    const { run, checkIn, store } = await withReplicas(t);
    await checkIn("a");
    const long = { name: "L".repeat(3_000), kid: "K".repeat(500), version: "9".repeat(300) };
    await checkIn("5c0ffee5-aaaa", long);
    const { stdout } = await run("replicas");
    for (const line of stdout.split("\n")) assert.ok(line.length < 200, line);
    assert.match(stdout, /^L+…L+… \(5c0ffee5\) .* signs with K+…K+ +9+…9+$/m);
    assert.equal((await run("replicas", "forget", "5c0ffee5")).code, 0);
    assert.deepEqual([...((await store.presence?.list(9))?.records.keys() ?? [])], ["a"]);
  });

  const attacks: Readonly<Record<string, (index: number) => [id: string, record: string]>> = {
    "50,000 records of one name": (index) => [`\u{1b}[31m${index}`, record(`id-${index}`)],
    "400 records of 1 MB": (index) => [`${index}`, "x".repeat(1_000_000)],
    "20,000 ids of 2 kB": (index) => [`${index}${"x".repeat(2_000)}`, record("a")],
  };
  for (const [name, of] of Object.entries(attacks)) {
    test(`lists the first of many presence records and counts the others: ${name}`, async (t) => {
      const { run, data } = await withReplicas(t);
      const count = Number(/^[\d,]+/.exec(name)?.[0].replace(",", ""));
      const db = new DatabaseSync(join(data, "keys.db"));
      db.exec("BEGIN");
      const insert = db.prepare("INSERT INTO presence VALUES (?, ?)");
      for (let index = 0; index < count; index += 1) insert.run(...of(index));
      db.exec("COMMIT");
      db.close();
      const { stdout, code } = await run("replicas");
      assert.equal(code, 0);
      assert.doesNotMatch(stdout, /[^\n -~]/);
      const { replicas, unread } = JSON.parse((await run("replicas", "--json")).stdout) as Listed;
      assert.ok(replicas.length <= 500);
      assert.ok(unread >= count - 500);
      assert.match(
        stdout.replaceAll("\n", " "),
        new RegExp(`The store has ${unread.toLocaleString("en")} more presence records`),
      );
    });
  }

  test("still works if the presence records cannot be read, but reports an error, as do the commands that show keys", async (t) => {
    const { run, data } = await withReplicas(t);
    const db = new DatabaseSync(join(data, "keys.db"));
    db.exec("DROP TABLE presence");
    db.close();
    for (const command of ["replicas", "keys", "plan"]) {
      const { code, stdout, stderr } = await run(command);
      assert.equal(code, 1, command);
      assert.match(stderr, /^jwksd: the presence records cannot be read: .*\[ERR_STORE_FORMAT\]\n$/, command);
      assert.match(stdout, command === "replicas" ? /^No replicas are listed/ : /first/, command);
    }
  });

  test("says so if no replicas are listed", async (t) => {
    const { run } = await withReplicas(t);
    assert.match((await run("replicas")).stdout, /^No replicas are listed\.\nNot listed: on-demand processes/);
  });
});
