import assert from "node:assert/strict";
import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { systemClock } from "../../src/base/clock.ts";
import { rewrap } from "../../src/rotation/custody/rewrap.ts";
import { createStoreAccess } from "../../src/rotation/manager/store-access.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { allMetrics } from "../support/all-metrics.ts";
import { custodyOf, newWrappingKey, wrappingKeyOf } from "../support/managed.ts";
import { skipWithout } from "../support/parts.ts";
import { startPostgres } from "../support/postgres.ts";
import { adminArgs, familiesOf, scrape, type Scrape, pageOf } from "../support/scrape.ts";
import {
  startService,
  temporaryFolder,
  type RunningService,
  eventually,
  keySetText,
  runCli,
  startServiceProcess,
} from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";
import { type Moment, disagreements } from "./fired.ts";
import { promtool } from "./promtool.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const read = (file: string): Promise<string> => readFile(join(root, file), "utf8");
const alertsIn = (text: string): string[] => Array.from(text.matchAll(/alert: (\w+)/g), ([, name = ""]) => name);

describe("ops/alerts.yml", { skip: skipWithout("promtool") }, () => {
  test("promtool finds no error in the rules", async () => {
    const { stdout } = await promtool("check", "rules", "--lint-fatal", "alerts.yml");
    assert.match(stdout, /SUCCESS/);
  });

  test("each alert fires only for its fault and stops when the fault ends", async (t) => {
    const file = join(await temporaryFolder(t), "alerts.test.yml");
    const text = (await read("ops/alerts.test.yml"))
      .replace("[alerts.yml]", JSON.stringify([join(root, "ops/alerts.yml")]))
      .replace("evaluation_interval: 1m", `evaluation_interval: ${soak(1, 5)}m`);
    await writeFile(file, text);
    const { stdout } = await promtool("test", "rules", file);
    assert.match(stdout, /SUCCESS/);
  });
});

test("each alert has a case that includes the time before and after the alert", async () => {
  const cases = (await read("ops/alerts.test.yml")).split(/^ {2}- name:/m).slice(1);
  const firing = cases.flatMap((text) => Array.from(text.matchAll(/alertname="(\w+)"/g), ([, name = ""]) => name));
  assert.deepEqual([...new Set(firing)].toSorted(), alertsIn(await read("ops/alerts.yml")).toSorted());
  for (const text of cases) assert.match(text, /exp_samples: \[\]/, "each case has a time at which no alert fires");
});

test("each alert links to its section in docs/alerts.md, which has a remedy", async () => {
  const page = await read("docs/alerts.md");
  const anchors = new Map(
    page
      .split(/^## /m)
      .slice(1)
      .map((section) => [section.split("\n", 1)[0]?.toLowerCase() ?? "", section]),
  );
  const rules = (await read("ops/alerts.yml")).split("- alert: ").slice(1);
  for (const rule of rules) {
    const [, name = ""] = /^(\w+)/.exec(rule) ?? [];
    const [, anchor = ""] = /runbook_url: \S+\/docs\/alerts\.md#(\S+)/.exec(rule) ?? [];
    assert.equal(anchor, name.toLowerCase());
    assert.match(anchors.get(anchor) ?? "no section", /```sh|\]\((?:\w+\.md)?#/, `${name}: a command or a link to one`);
  }
});

test("a scrape returns exactly the metrics in docs/metrics.md, including those that the alerts and the dashboard use", async (t) => {
  // Signatures are counted only by a service that signs.
  const folder = await temporaryFolder(t);
  const signs = ["--sign-socket", join(folder, "sign.sock")];
  const service = await startService(t, ["--data", join(folder, "data"), ...signs, ...adminArgs]);
  const known = new Set(familiesOf((await scrape(service)).text));
  // Other programs have these: a verifier, a guard, and a provider of many issuers.
  const elsewhere = /^jwksd_(?:remote_set|retired_kids|guard|issuers?|due_run)(?:_|$)/;
  const documented = (await allMetrics()).map(({ name }) => name);
  const scraped = [...known].filter((name) => name.startsWith("jwksd_"));
  assert.deepEqual(new Set(scraped), new Set(documented.filter((name) => !elsewhere.test(name))));
  for (const name of documented) known.add(name);
  const dashboard = JSON.parse(await read("ops/dashboard.json")) as { readonly panels: readonly object[] };
  assert.ok(dashboard.panels.length > 10);
  for (const file of ["ops/alerts.yml", "ops/alerts.test.yml", "ops/dashboard.json"]) {
    const named = new Set((await read(file)).match(/\b(?:jwksd|process|nodejs)_[a-z0-9_]+\b/g));
    const missing = [...named].filter((name) => !known.has(name.replace(/_(?:bucket|sum|count)$/, "")));
    assert.deepEqual(missing, [], file);
    assert.ok(named.size > 10, file);
  }
});

// Each fault is caused in a real service and checked twice: while it lasts, and after it.

const minute = 60_000;
const realNow = Date.now.bind(Date);
const realMonotonic = performance.now.bind(performance);

/** This process's clock, which SQLite stores use too. */
class Wall {
  readonly #t: TestContext;
  constructor(t: TestContext) {
    this.#t = t;
  }
  /** Sets the wall clock. @param ms offset from the real time, in milliseconds */
  set(ms: number): void {
    this.#t.mock.restoreAll();
    if (ms !== 0) this.#t.mock.method(Date, "now", () => realNow() + ms);
  }
  /** Sets both clocks to this time after the start of the test, in milliseconds. */
  pass(ms: number): void {
    this.set(ms);
    this.#t.mock.method(performance, "now", () => realMonotonic() + ms);
  }
}

const count = ({ samples }: Scrape, name: string): number =>
  Object.entries(samples)
    .filter(([sample]) => sample === name || sample.startsWith(`${name}{`))
    .reduce((sum, [, value]) => sum + value, 0);

const failing = (seen: Scrape): boolean => count(seen, "jwksd_failure") > 0;
const behind = ({ samples }: Scrape): number => samples['jwksd_replicas{state="behind"}'] ?? 0;

/** Reports whether an announced key's propagation period has begun. */
const waits = ({ samples }: Scrape): boolean =>
  Object.keys(samples).some((name) => /^jwksd_step_timestamp_seconds.*activate/.test(name));

/** Scrapes until a condition holds. */
async function until(what: string, service: RunningService, holds: (seen: Scrape) => boolean): Promise<void> {
  await eventually(what, async () => holds(await scrape(service)), 200);
}

/** Waits until the service is settled: its data about the store can be two seconds old. */
async function settled(service: RunningService): Promise<void> {
  await until("the service is settled", service, (seen) => behind(seen) === 0 && seen.samples["jwksd_ready"] !== 0);
}

async function managed(t: TestContext, ...args: readonly string[]) {
  const folder = await temporaryFolder(t);
  const data = join(folder, "data");
  const start = async () => {
    const service = await startService(t, ["--data", data, ...adminArgs, ...args]);
    await settled(service);
    return service;
  };
  const run = async (...command: readonly string[]): Promise<void> => {
    const { code, stdout, stderr } = await runCli(t, [...command, "--data", data]);
    assert.equal(code, 0, stdout + stderr);
  };
  return { folder, data, start, run };
}

describe("each fault triggers its alert and no other", { skip: skipWithout("promtool") }, () => {
  const moments: Moment[] = [];

  async function check(
    name: string,
    service: RunningService,
    alert?: { readonly name: string; readonly pageText: RegExp },
    now: () => number = Date.now,
  ): Promise<Scrape> {
    if (alert === undefined) await settled(service);
    const pageText = alert?.pageText ?? /<main[^]*No errors or warnings\./;
    // A service's data about its store can be two seconds old, on the page and in a scrape.
    await eventually(`the page contains ${pageText}`, async () => pageText.test(await pageOf(service)), 200);
    // For a moment, a process has loaded a change that its presence record does not report yet.
    if (alert?.name !== "JwksdReplicaBehind")
      await until("no replica is behind", service, (seen) => behind(seen) === 0 || failing(seen));
    const seen = await scrape(service);
    assert.equal(seen.status, 200, seen.text);
    moments.push({ name, scrape: seen, at: now(), alert: alert?.name });
    return seen;
  }

  test("the store is unavailable, first for a few minutes, then for longer than maxStaleSeconds", async (t) => {
    const wall = new Wall(t);
    const { data, start, run } = await managed(t);
    const service = await start();
    await check("all is well", service);
    await rename(data, `${data}-gone`);
    wall.pass(5 * minute);
    await check("the store is unavailable", service, {
      name: "JwksdStoreUnreachable",
      pageText: /Keys cannot be managed, so no steps are taken and the last valid keys remain in use/,
    });
    wall.pass(130 * minute);
    await check("the store is unavailable, and the process is stale", service, {
      name: "JwksdNotReady",
      pageText: /This process is stale, so it does not sign and is not ready/,
    });
    const jwks = await fetch(service.jwksUri);
    assert.deepEqual([jwks.status, jwks.headers.get("cache-control")], [200, "public, max-age=300, must-revalidate"]);
    const admin = service.log.find(({ msg }) => msg === "started")?.["admin"] as string;
    const ready = await fetch(`${admin}/readyz`);
    assert.equal(ready.status, 503);
    assert.match(
      await ready.text(),
      /not checked in with its store for --max-stale-seconds; the last failure was ERR_STORE/,
    );
    await rename(`${data}-gone`, data);
    // A commit wakes the service before its own retry.
    await run("keys", "announce", "--use", "enc", "--wait", "0");
    await check("the store is back", service);
  });

  test("a replica is stopped, and a key is announced", async (t) => {
    const wall = new Wall(t);
    const { data, start, run } = await managed(t);
    const service = await start();
    const other = await startServiceProcess(t, ["--data", data, "--replica-name", "other"]);
    other.process.kill("SIGSTOP");
    await run("rotate", "--wait", "0");
    await until("the propagation period has begun without it", service, (seen) => behind(seen) === 1 && waits(seen));
    wall.set(2 * minute);
    const pageText = /REPLICA_BEHIND[^]*other[^]*jwksd replicas --data/;
    await check("a replica is behind", service, { name: "JwksdReplicaBehind", pageText });
    wall.set(0);
    other.process.kill("SIGCONT");
    await check("the replica has caught up", service);
  });

  describe("with keys in a key service", () => {
    const token = "hvs.only-for-this-test";

    async function withVault(t: TestContext) {
      const vault = await vaultStub(token);
      t.after(() => vault.close());
      const before = process.env["VAULT_TOKEN"];
      process.env["VAULT_TOKEN"] = token;
      t.after(() => {
        if (before === undefined) delete process.env["VAULT_TOKEN"];
        else process.env["VAULT_TOKEN"] = before;
      });
      const file = join(await temporaryFolder(t), "signers.json");
      await writeFile(file, JSON.stringify({ vaultTransit: { mount: `${vault.url}/transit` } }));
      return { vault, signers: ["--signers", file], there: ["--signer-type", "vault-transit", "--signers", file] };
    }

    test("the next key cannot be opened", async (t) => {
      const { vault, signers, there } = await withVault(t);
      const { start, run } = await managed(t, ...there);
      await run("keys", "import", "--signer", vault.add("first"), "--kid", "first", ...signers);
      await run("rotate", ...there);
      vault.fail("read", { status: 503, json: { errors: ["sealed"] } }, 1_000);
      const service = await start();
      const seen = await check("the keys cannot be opened", service, {
        name: "JwksdSignerFailing",
        pageText: /cannot be opened by this process/,
      });
      assert.equal(count(seen, "jwksd_key_unusable"), 2);
      vault.recover();
      await run("keys", "announce", "--use", "enc");
      await until("they can be opened", service, (seen) => count(seen, "jwksd_key_unusable") === 0);
      await check("the key service is back", service);
    });

    test("the next key cannot be generated", async (t) => {
      const wall = new Wall(t);
      const { vault, signers, there } = await withVault(t);
      const { start, run } = await managed(t, ...there);
      wall.set(-100 * 24 * 60 * minute);
      await run("keys", "import", "--signer", vault.add("first"), "--kid", "first", ...signers);
      wall.set(0);
      vault.fail("create", { status: 503, json: { errors: ["sealed"] } }, 1_000);
      const service = await start();
      const seen = await check("there is no successor", service, {
        name: "JwksdNoSuccessor",
        pageText: /should have been announced at/,
      });
      assert.equal(count(seen, "jwksd_failure"), 1);
      vault.recover();
      await run("rotate");
      await until("the successor is announced", service, (seen) => count(seen, "jwksd_failure") === 0);
      await check("there is a successor", service);
    });
  });

  test("the wrapping key is no longer the one that the store uses", async (t) => {
    const { data, start } = await managed(t);
    const service = await start();
    const [own, other] = [await wrappingKeyOf(data), newWrappingKey()];
    // The command would refuse this, because the service does not have that key.
    const rewrapped = async (...keys: readonly string[]): Promise<void> => {
      const store = sqliteStore(join(data, "keys.db"));
      const custody = await custodyOf(store, keys);
      const { signal } = new AbortController();
      const access = createStoreAccess(custody, { policy: rotationPolicy(), clock: systemClock, signal });
      await custody.movingToFirst(() =>
        access.change(({ document, now }) => rewrap(document.records, custody, now, "by an operator")),
      );
    };
    await rewrapped(other, own);
    await until("the service detects it", service, failing);
    const { samples } = await check("the wrapping key is wrong", service, {
      name: "JwksdWrappingKeyMissing",
      pageText: /<code>ERR_WRAPPING_KEY_MISSING<\/code>/,
    });
    assert.equal(samples['jwksd_failure{code="ERR_WRAPPING_KEY_MISSING"}'], 1);
    await rewrapped(own, other);
    await until("the old wrapping key is back", service, (seen) => !failing(seen));
    await check("the wrapping key is back", service);
  });

  test("the machine's clock is wrong", { skip: skipWithout("initdb") }, async (t) => {
    const wall = new Wall(t);
    const server = await startPostgres();
    t.after(() => server.stop());
    const own = ["--data", await temporaryFolder(t)];
    const args = ["--store", server.url(), "--issuer", "https://op.example", ...own, ...adminArgs];
    const service = await startService(t, args, { JWKSD_WRAPPING_KEYS: newWrappingKey() });
    wall.set(-10 * minute);
    // On a busy machine, a response from the store takes up to several seconds.
    const pageText = /This machine&#39;s clock is (?:9 min \d+ s|10 min(?: \d+ s)?) behind the store&#39;s clock/;
    await check("the clock is ten minutes behind", service, { name: "JwksdClockSkew", pageText }, realNow);
    wall.set(0);
    await check("the clock is right", service);
  });

  test("an update of the key files is rejected", async (t) => {
    const keys = join(await temporaryFolder(t), "keys.json");
    await writeFile(keys, keySetText("a"), { mode: 0o600 });
    const service = await startService(t, ["--keys", keys, ...adminArgs]);
    await check("the key files are valid", service);
    await writeFile(keys, "{}");
    service.reload();
    await until("the update is refused", service, ({ samples }) => samples["jwksd_update_refused"] === 1);
    await check("the key files are refused", service, {
      name: "JwksdUpdateRefused",
      pageText: /The key files were rejected, so the old keys remain in use/,
    });
    await writeFile(keys, keySetText("b"));
    service.reload();
    await until("the update is accepted", service, ({ samples }) => samples["jwksd_update_refused"] === 0);
    await check("the key files are valid again", service);
  });

  test("promtool gets the same results when it evaluates all scrapes", async (t) => {
    assert.ok(moments.length >= 15, `only ${moments.length} moments`);
    assert.equal(await disagreements(await temporaryFolder(t), moments), "");
  });
});
