// Commands for all issuers in a database.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createClient } from "@libsql/client";
import { systemClock } from "../../src/base/clock.ts";
import { readWrappingKeys } from "../../src/rotation/custody/key-wrapping.ts";
import { presenceText } from "../../src/rotation/custody/presence-records.ts";
import { createIssuers } from "../../src/rotation/issuers/issuers.ts";
import type { Issuers } from "../../src/rotation/issuers/types.ts";
import { libsqlStore } from "../../src/rotation/store/databases/libsql.ts";
import { issuerKey } from "../../src/rotation/store/issuer-hash.ts";
import { startLibsql } from "../support/libsql.ts";
import { newWrappingKey } from "../support/managed.ts";
import { type Scope, cliDone, cliRefused, runCli } from "../support/service.ts";
import { presenceRecord } from "../support/store-view.ts";

const day = 86_400_000;
const named = (name: string): string => `https://op.example/${name}`;

/** Starts a database. Creates issuers in it. @param ages the number of days since each was created, by name */
async function database(t: Scope, ages: Readonly<Record<string, number>>) {
  const url = await startLibsql(t);
  const client = createClient({ url });
  t.after(async () => client.close());
  const wrappingKeys = newWrappingKey();
  const open = (days = 0, keys = wrappingKeys) =>
    createIssuers({
      issuer: "https://op.example/*",
      // Without the database's clock, which is ahead of an issuer that was created earlier.
      store: (issuer) => {
        const register = libsqlStore(client, { issuer });
        return { ...register, read: async (...args) => ({ ...(await register.read(...args)), now: undefined }) };
      },
      wrappingKeys: keys,
      clock: { ...systemClock, now: () => Date.now() - days * day },
    });
  for (const [name, days] of Object.entries(ages)) await (await open(days)).create(named(name));
  const environment = {
    JWKSD_STORE: `libsql://${new URL(url).host}?tls=0`,
    JWKSD_WRAPPING_KEYS: wrappingKeys,
  };
  const sql = (text: string, ...args: string[]) => client.batch([{ sql: text, args }], "write");
  return { environment, wrappingKeys, open, client, issuers: await open(), sql };
}

interface Listed {
  readonly count: number;
  readonly failing: number;
  readonly overdue: number;
  readonly issuers: readonly {
    readonly issuer: string;
    readonly state: string;
    readonly keys: readonly { readonly state: string }[];
    readonly nextStep: { readonly step: string; readonly at: string | null } | null;
    readonly error: { readonly code: string } | null;
  }[];
}

describe("jwksd issuers", () => {
  test("lists all issuers, starting with those that fail or have an overdue step", async (t) => {
    const { environment, issuers, sql } = await database(t, { late: 120, soon: 60, new: 0, broken: 1, hidden: 1 });
    const listed = async (exitCode: number): Promise<Listed> => {
      const { stdout, code, stderr } = await runCli(t, ["issuers", "--json"], environment);
      assert.equal(code, exitCode, stderr);
      return JSON.parse(stdout) as Listed;
    };
    assert.deepEqual([(await listed(1)).failing, (await listed(1)).overdue], [0, 1]);

    await sql("UPDATE jwksd_documents SET text = replace(text, 'active', 'retired') WHERE name = ?", named("broken"));
    // Someone hides an issuer under another's name.
    await sql("UPDATE jwksd_documents SET name = ? WHERE name = ?", named("new"), named("hidden"));
    const found = await listed(1);
    const [one, other, ...others] = found.issuers;
    assert.deepEqual(new Set([one?.issuer, other?.issuer]), new Set([named("new"), named("broken")]));
    for (const issuer of [one, other])
      assert.deepEqual([issuer?.state, issuer?.keys, issuer?.error?.code], ["failing", [], "ERR_STORE_NOT_AUTHENTIC"]);
    assert.deepEqual(
      others.map(({ issuer, state, keys, nextStep }) => [issuer, state, keys.map((key) => key.state), nextStep?.step]),
      [
        [named("late"), "overdue", ["active"], "announce"],
        [named("soon"), "ok", ["active"], "announce"],
        [named("new"), "ok", ["active"], "announce"],
      ],
    );
    const text = await runCli(t, ["issuers"], environment);
    assert.equal(text.code, 1);
    assert.match(text.stdout, /^STATE +KEYS +NEXT STEP \(UTC\)\nfailing {2}- +-\n {5}https:.*\n.*\[ERR_STORE_NOT_AUTH/);
    assert.match(
      text.stdout,
      /\noverdue {2}active {2}announce \d{4}-\d\d-\d\d \d\d:\d\d, \d+ d.* ago\n.*op\.example\/late\n/,
    );
    assert.match(text.stdout, /\nTotal: 5\. Failing: 2\. Overdue: 1\.\n$/);

    await sql(
      "UPDATE jwksd_documents SET name = ? WHERE issuer = ?",
      named("hidden"),
      await issuerKey(named("hidden")),
    );
    await sql("DELETE FROM jwksd_documents WHERE name = ?", named("broken"));
    await issuers.runDueSteps(named("late"));
    const late = (await listed(0)).issuers.find(({ issuer }) => issuer === named("late"));
    assert.deepEqual([late?.state, late?.keys.map(({ state }) => state)], ["ok", ["active", "announced"]]);
    await sql("DELETE FROM jwksd_documents");
    assert.equal((await cliDone(t, ["issuers"], environment)).stdout, "The database has no issuers.\n");
  });

  test("refuses to run if the store cannot list its issuers or if no wrapping key is given", async (t) => {
    const { environment } = await database(t, { one: 0 });
    const { JWKSD_STORE, JWKSD_WRAPPING_KEYS } = environment;
    const rows: [Readonly<Record<string, string>>, RegExp][] = [
      [{ JWKSD_WRAPPING_KEYS }, /the store in --data .* cannot list issuers; set --store .*\[ERR_OPTION_INVALID\]/],
      [
        { JWKSD_WRAPPING_KEYS, JWKSD_STORE: "redis://127.0.0.1:1" },
        /the database in --store cannot list issuers.*\[ERR_OPTION_INVALID\]/,
      ],
      [
        { JWKSD_WRAPPING_KEYS, JWKSD_STORE: "etcd://127.0.0.1:1" },
        /cannot use the store http:.*\[ERR_STORE_UNAVAILABLE\]/,
      ],
      [{ JWKSD_STORE }, /the wrapping key is missing.*\[ERR_WRAPPING_KEY_MISSING\]/],
    ];
    for (const [settings, says] of rows) assert.match(await cliRefused(t, ["issuers"], settings), says);
    const wrong = await runCli(t, ["issuers"], { JWKSD_STORE, JWKSD_WRAPPING_KEYS: newWrappingKey() });
    assert.match(wrong.stdout, /\[ERR_WRAPPING_KEY_MISSING\]\n\nTotal: 1\. Failing: 1\./);
  });

  test("lists each issuer once, whatever the rows' keys are", async (t) => {
    const { environment, issuers, sql } = await database(t, { a: 0, b: 0, c: 0 });
    await sql("UPDATE jwksd_documents SET issuer = 'zz' WHERE name = ?", named("b"));
    await sql(
      "INSERT INTO jwksd_documents SELECT '00', 'https://other.example', version, text, due FROM jwksd_documents LIMIT 1",
    );
    const { stdout } = await runCli(t, ["issuers", "--json"], environment);
    assert.equal((JSON.parse(stdout) as Listed).count, 4);
    for (const limit of [1, 2, 3, 100]) {
      const names: string[] = [];
      for (let page = await issuers.list({ limit }); ; page = await issuers.list({ limit, after: page.at(-1) })) {
        names.push(...page.map(({ issuer, state }) => `${issuer.at(-1)} ${state}`));
        if (page.length < limit) break;
      }
      assert.deepEqual(names.toSorted(), ["a ok", "b failing", "c ok"]);
    }
  });
});

describe("jwksd issuers revoke-keys", () => {
  const ages = Object.fromEntries(Array.from({ length: 12 }, (_, index) => [`${index}`, 0]));
  const names = Object.keys(ages);
  const resume = /jwksd (issuers revoke-keys --yes --before [\d-]+T[\d:.]+Z)\n/;

  /** Returns the kids of all issuers' keys, by state. */
  async function kidsOf(issuers: Issuers): Promise<Record<"live" | "revoked", string[]>> {
    const all = await Promise.all(
      names.map(async (name) => {
        const { keys } = (await issuers.get(named(name))) ?? assert.fail(name);
        await keys.runDueSteps();
        return keys.records;
      }),
    );
    const kids = (isRevoked: boolean) =>
      all.flatMap((records) =>
        records.filter(({ state }) => (state === "revoked") === isRevoked).map(({ kid }) => kid),
      );
    return { live: kids(false), revoked: kids(true) };
  }

  test("revokes each issuer's keys in one commit, encrypts new keys with the first wrapping key, and resumes where it failed", async (t) => {
    const { environment, wrappingKeys, open, issuers, sql } = await database(t, ages);
    const keysOf = async (name: string) => ((await issuers.get(named(name))) ?? assert.fail()).keys;
    await (await keysOf("1")).rotate();
    await (await keysOf("2")).rotate({ now: true });
    await (await keysOf("3")).rotate({ use: "enc" });
    await issuers.decommission(named("6"), { now: true });
    const before = await kidsOf(issuers);
    assert.equal(before.live.length, 14);
    const damaged = named("5");
    await sql("UPDATE jwksd_documents SET text = 'x' || text WHERE name = ?", damaged);
    const [leaked, first] = [wrappingKeys, newWrappingKey()];
    const both = { ...environment, JWKSD_WRAPPING_KEYS: `${first} ${leaked}` };
    const dry = await runCli(t, ["issuers", "revoke-keys", "--dry-run"], both);
    assert.match(dry.stdout, /^Dry run: nothing was changed\. 12 issuers: 13 keys would be revoked\.\n/);
    assert.match(dry.stdout, /\nKeys are still valid for 1 of 12 issuers: https:/);
    const [{ id }] = await readWrappingKeys([first]);
    const refusal = await cliRefused(t, ["issuers", "revoke-keys"], both);
    assert.match(refusal, new RegExp(`all keys of 12 issuers.* wrapping key ${id}\\. .*\\[ERR_CONFIRMATION\\]`));

    const run = await runCli(t, ["issuers", "revoke-keys", "--yes", "--json"], both);
    assert.equal(run.code, 1);
    const { revoked, failed, trustedUntil } = JSON.parse(run.stdout) as {
      revoked: number;
      failed: { issuer: string; code: string }[];
      trustedUntil: string;
    };
    assert.deepEqual([revoked, failed.map(({ issuer }) => issuer)], [13, [damaged]]);
    assert.ok(Date.parse(trustedUntil) > Date.now() + 3_600_000);
    assert.match(run.stderr, /op\.example\/5: .*\[ERR_STORE_NOT_AUTHENTIC\]/);
    const [, again = ""] = resume.exec(run.stderr) ?? [];
    await sql("UPDATE jwksd_documents SET text = substr(text, 2) WHERE name = ?", damaged);
    const versions = async () =>
      (await sql("SELECT name, version FROM jwksd_documents"))[0]?.rows.map(({ name, version }) => [name, version]);
    const between = new Map((await versions()) as [string, string][]);
    const text = await cliDone(t, again.split(" "), both);
    assert.match(text.stdout, /^12 issuers: 1 key revoked\.\n\nCaches and processes [^]* UTC\.\n$/);
    const changed = (await versions())?.filter(([name, version]) => between.get(name as string) !== version);
    assert.deepEqual(
      changed?.map(([name]) => name),
      [damaged],
      "issuers that were done are not changed again",
    );

    // The leaked wrapping key opens nothing, and the new one everything.
    const after = await kidsOf(await open(0, first));
    assert.deepEqual(after.revoked.toSorted(), [...before.live, ...before.revoked].toSorted());
    assert.equal(after.live.length, 12);
    for (const name of names)
      await assert.rejects((await open(0, leaked)).get(named(name)), { code: "ERR_WRAPPING_KEY_MISSING" });
  });

  test("revokes every key encrypted with a leaked wrapping key, and reports any issuer whose row has another issuer's name or whose replicas lack the new wrapping key", async (t) => {
    const { environment, wrappingKeys, client, sql } = await database(t, { hidden: 0, served: 0, old: 0 });
    const both = { ...environment, JWKSD_WRAPPING_KEYS: `${newWrappingKey()} ${wrappingKeys}` };
    const command = ["issuers", "revoke-keys", "--yes", "--json"];
    const record = presenceRecord("login-1", { at: Date.now(), revision: 1 });
    const served = libsqlStore(client, { issuer: named("served") });
    await served.presence?.put("login-1", presenceText(record));
    await sql("UPDATE jwksd_documents SET name = ? WHERE name = ?", named("old"), named("hidden"));
    const first = await runCli(t, command, both);
    assert.match(first.stderr, /served: .* these replicas do not have that key: "login-1"/);
    assert.match(first.stderr, /old: the row "\w{64}" has another issuer's name/);
    assert.deepEqual((JSON.parse(first.stdout) as { revoked: number }).revoked, 1);

    await sql(
      "UPDATE jwksd_documents SET name = ? WHERE issuer = ?",
      named("hidden"),
      await issuerKey(named("hidden")),
    );
    await served.presence?.drop(["login-1"]);
    // Whatever the time is, because the leaked wrapping key encrypts these.
    const again = await cliDone(t, [...command, "--before", "2020-01-01T00:00:00.000Z"], both);
    assert.equal((JSON.parse(again.stdout) as { revoked: number }).revoked, 2);
    const last = await cliDone(t, [...command, "--before", "2020-01-01T00:00:00.000Z"], both);
    assert.equal((JSON.parse(last.stdout) as { revoked: number }).revoked, 0);
  });
});
