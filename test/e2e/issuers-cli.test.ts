// Commands for all issuers in a database.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createClient } from "@libsql/client";
import { systemClock } from "../../src/base/clock.ts";
import { createIssuers } from "../../src/rotation/issuers/issuers.ts";
import { libsqlStore } from "../../src/rotation/store/databases/libsql.ts";
import { issuerKey } from "../../src/rotation/store/issuer.ts";
import { startLibsql } from "../support/libsql.ts";
import { newWrappingKey } from "../support/managed.ts";
import { type Scope, cliDone, cliRefused, runCli } from "../support/service.ts";

const day = 86_400_000;
const named = (name: string): string => `https://op.example/${name}`;

/** Starts a database. Creates issuers in it. @param ages the number of days since each was created, by name */
async function database(t: Scope, ages: Readonly<Record<string, number>>) {
  const url = await startLibsql(t);
  const client = createClient({ url });
  t.after(async () => client.close());
  const wrappingKeys = newWrappingKey();
  const open = (days = 0) =>
    createIssuers({
      issuer: "https://op.example/*",
      // Without the database's clock, which is ahead of an issuer that was created earlier.
      store: (issuer) => {
        const register = libsqlStore(client, { issuer });
        return { ...register, read: async (...args) => ({ ...(await register.read(...args)), now: undefined }) };
      },
      wrappingKeys,
      clock: { ...systemClock, now: () => Date.now() - days * day },
    });
  for (const [name, days] of Object.entries(ages)) await (await open(days)).create(named(name));
  const environment = {
    JWKSD_STORE: `libsql://${new URL(url).host}?tls=0`,
    JWKSD_WRAPPING_KEYS: wrappingKeys,
  };
  const sql = (text: string, ...args: string[]) => client.batch([{ sql: text, args }], "write");
  return { environment, issuers: await open(), sql };
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
  test("lists all issuers, first those that fail and those whose step is overdue, until both are put right", async (t) => {
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
    assert.match(text.stdout, /\n5 issuers: 2 failing, 1 overdue\.\n$/);

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

  test("refuses a store that cannot list its issuers, and missing wrapping keys", async (t) => {
    const { environment } = await database(t, { one: 0 });
    const { JWKSD_STORE, JWKSD_WRAPPING_KEYS } = environment;
    const rows: [Readonly<Record<string, string>>, RegExp][] = [
      [{ JWKSD_WRAPPING_KEYS }, /the store in --data .* cannot list issuers; use the URL of .*\[ERR_OPTION_INVALID\]/],
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
    assert.match(wrong.stdout, /\[ERR_WRAPPING_KEY_MISSING\]\n\n1 issuers: 1 failing/);
  });

  test("the list has each issuer once, whatever keys the rows have", async (t) => {
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
