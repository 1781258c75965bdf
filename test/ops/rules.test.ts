import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { skipWithout } from "../support/parts.ts";
import { adminArgs, familiesOf, scrape } from "../support/scrape.ts";
import { startService, temporaryFolder } from "../support/service.ts";
import { promtool } from "./promtool.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const read = (file: string): Promise<string> => readFile(join(root, file), "utf8");
const alertsIn = (text: string): string[] => Array.from(text.matchAll(/alert: (\w+)/g), ([, name = ""]) => name);

describe("ops/alerts.yml", { skip: skipWithout("promtool") }, () => {
  test("promtool finds no fault in the rules", async () => {
    const { stdout } = await promtool("check", "rules", "--lint-fatal", "alerts.yml");
    assert.match(stdout, /SUCCESS/);
  });

  test("each alert fires for its fault and for no other, and ends with it", async () => {
    const { stdout } = await promtool("test", "rules", "alerts.test.yml");
    assert.match(stdout, /SUCCESS/);
  });
});

test("there is a case for each alert, with what comes before it and after it", async () => {
  const cases = (await read("ops/alerts.test.yml")).split(/^ {2}- name:/m).slice(1);
  const firing = cases.flatMap((text) => Array.from(text.matchAll(/alertname="(\w+)"/g), ([, name = ""]) => name));
  assert.deepEqual([...new Set(firing)].toSorted(), alertsIn(await read("ops/alerts.yml")).toSorted());
  for (const text of cases) assert.match(text, /exp_samples: \[\]/, "and one moment at which none fires");
});

test("each alert has a section in docs/operations.md, with what to do, and links to it", async () => {
  const page = await read("docs/operations.md");
  const anchors = new Map(
    page
      .split(/^### /m)
      .slice(1)
      .map((section) => [section.split("\n", 1)[0]?.toLowerCase() ?? "", section]),
  );
  const rules = (await read("ops/alerts.yml")).split("- alert: ").slice(1);
  for (const rule of rules) {
    const [, name = ""] = /^(\w+)/.exec(rule) ?? [];
    const [, anchor = ""] = /runbook_url: \S+\/docs\/operations\.md#(\S+)/.exec(rule) ?? [];
    assert.equal(anchor, name.toLowerCase());
    assert.match(anchors.get(anchor) ?? "no section", /```sh|\]\(#/, `${name}: a command, or where one is`);
  }
});

test("every metric that the alerts and the dashboard name is in a scrape", async (t) => {
  const service = await startService(t, ["--data", join(await temporaryFolder(t), "data"), ...adminArgs]);
  const known = new Set(familiesOf((await scrape(service)).text));
  const dashboard = JSON.parse(await read("ops/dashboard.json")) as { readonly panels: readonly object[] };
  assert.ok(dashboard.panels.length > 10);
  for (const file of ["ops/alerts.yml", "ops/alerts.test.yml", "ops/dashboard.json"]) {
    const named = new Set((await read(file)).match(/\b(?:jwksd|process|nodejs)_[a-z0-9_]+\b/g));
    const missing = [...named].filter((name) => !known.has(name.replace(/_(?:bucket|sum|count)$/, "")));
    assert.deepEqual(missing, [], file);
    assert.ok(named.size > 10, file);
  }
});
