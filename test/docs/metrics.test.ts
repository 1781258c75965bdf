import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { allMetrics } from "../support/all-metrics.ts";
import { adminArgs, familiesOf, scrape } from "../support/scrape.ts";
import { startService, temporaryFolder } from "../support/service.ts";
import { tableOf } from "./metrics.ts";

test("docs/metrics.md has the table that the code makes", async () => {
  const page = await readFile(new URL("../../docs/metrics.md", import.meta.url), "utf8");
  const [, table] = /<!-- table: [^>]* -->\s+([^]*?)\s+<!-- end of table -->/.exec(page) ?? [];
  assert.equal(table, tableOf(await allMetrics()), "node test/docs/metrics.ts prints it");
});

test("each metric of a scrape is one of them, and each of them is scraped, but for those of a verifier", async (t) => {
  // Only a service that signs counts signatures.
  const folder = await temporaryFolder(t);
  const signs = ["--sign-socket", join(folder, "sign.sock")];
  const service = await startService(t, ["--data", join(folder, "data"), ...signs, ...adminArgs]);
  const scraped = familiesOf((await scrape(service)).text).filter((name) => name.startsWith("jwksd_"));
  const known = (await allMetrics())
    .map(({ name }) => name)
    .filter((name) => !/^jwksd_(?:remote_set|retired_kids)_/.test(name));
  assert.deepEqual(scraped.toSorted(), known.toSorted());
});

test("counters, times and labels are named as Prometheus has it", async () => {
  for (const { name, type, values } of await allMetrics()) {
    assert.match(name, /^jwksd_[a-z]+(?:_[a-z]+)*$/);
    assert.equal(name.endsWith("_total"), type === "counter", name);
    assert.ok(!/_(?:ms|milliseconds|age|minutes)(?:_|$)/.test(name), name);
    for (const { labels } of values) for (const label of Object.keys(labels)) assert.match(label, /^[a-z_]+$/);
  }
});
