import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { durationText } from "../../src/base/format.ts";
import { brokenRules, openPage } from "../support/browser.ts";
import { commandStore, keyFor, wrappingKeyOf } from "../support/managed.ts";
import { startWithAdmin } from "../support/scrape.ts";
import { eventually, keySetText, temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";

type Served = Awaited<ReturnType<typeof startWithAdmin>>;

const isLive = (page: Page): Promise<unknown> => page.locator("#live", { hasText: /^Live$/ }).waitFor();

/** Returns how much wider a page is than its window, in pixels. */
const overflow = (page: Page): Promise<number> =>
  page.evaluate<number>("document.documentElement.scrollWidth - window.innerWidth");

/** Returns the width in pixels of the narrowest cell, in any table, that contains a kid or another long word. */
const narrowestCell = (page: Page): Promise<number> =>
  page.evaluate<number>(
    'Math.min(...Array.from(document.querySelectorAll("tbody :is(th, td):has(code)"), (cell) => cell.clientWidth))',
  );

/** Defines the tests. @param browser returns the browser, once the tests run */
export function checkPage(browser: () => Browser): void {
  describe("the admin page", () => {
    const scope: (() => Promise<void>)[] = [];
    let data: string;
    /** A service with a rotation in progress. */
    let managed: Served;
    /** A service whose keys have hostile names, and which has refused newer key files. */
    let files: Served;

    before(async () => {
      const t = { after: (end: () => Promise<void>) => void scope.unshift(end) };
      data = await temporaryFolder(t);
      managed = await startWithAdmin(t, "--data", data);
      const folder = await temporaryFolder(t);
      const keys = join(folder, "keys.json");
      await writeFile(keys, keySetText('"><img src=x onerror=alert(1)>', "</script><script>alert(2)</script>"));
      files = await startWithAdmin(t, "--keys", keys);
      await writeFile(keys, "{");
      await files.service.logged(({ msg }) => msg.startsWith("the old keys remain in use"));
    });
    after(async () => {
      for (const end of scope) await end();
    });

    test("shows a rotation live, without a reload", async (t) => {
      const { page, problems } = await openPage(browser(), managed.admin);
      await isLive(page);
      await page.evaluate("window.isSame = true");
      const key = await keyFor(await wrappingKeyOf(data));
      const { doneMs } = await commandStore(join(data, "keys.db"), { type: "rotate", use: "sig", key });
      for (const part of ["#keys", "#timeline", "#jwks", "#events"]) {
        await page.locator(part, { hasText: key.kid }).waitFor();
      }
      t.diagnostic(`visible ${Math.round(performance.now() - doneMs)} ms after the commit`);
      await page.locator("#glance", { hasText: "on: caches keep the set for 5 minutes" }).waitFor();
      assert.equal(await page.evaluate("window.isSame"), true);
      assert.deepEqual(problems, []);
      await page.context().close();
    });

    test("is complete without its script", async () => {
      const { page } = await openPage(browser(), managed.admin, { javaScriptEnabled: false });
      for (const heading of ["Health", "At a glance", "Timeline", "Keys", "Replicas", "Recent events"]) {
        assert.ok(await page.getByRole("region", { name: heading, exact: true }).isVisible(), heading);
      }
      assert.match((await page.locator("#jwks").textContent()) ?? "", /200 OK\s[^]*content-type: application\/jwk-set/);
      assert.match((await page.locator("#live").textContent()) ?? "", /^\s*As of\s+\d{4}-/);
      assert.equal(await page.getByRole("button").count(), 0, "elements that need the script are hidden");
      await page.context().close();
    });

    for (const [name, served] of [
      ["during a rotation", () => managed],
      ["with a fault and hostile names", () => files],
    ] as const) {
      test(`${name}: fits a phone and a wide screen, in light and dark mode, and is accessible`, async () => {
        const { page, problems } = await openPage(browser(), served().admin);
        await isLive(page);
        const screens = [[360, "dark"] as const, [1440, "light"] as const];
        for (const [width, colorScheme] of screens.slice(0, soak(2, 1))) {
          await page.emulateMedia({ colorScheme });
          await page.setViewportSize({ width, height: 900 });
          assert.ok((await overflow(page)) <= 0, `${width} px`);
          assert.ok((await narrowestCell(page)) >= 200, `${width} px: a kid is broken into many lines`);
          assert.deepEqual(await brokenRules(page), [], `${colorScheme}, ${width} px`);
        }
        assert.equal(await page.locator("img, main script").count(), 0);
        assert.deepEqual(problems, []);
        await page.context().close();
      });
    }

    test("shows a fault, and a key press copies the command that fixes it", async () => {
      const { page, problems } = await openPage(browser(), files.admin, {
        permissions: ["clipboard-read", "clipboard-write"],
      });
      await isLive(page);
      assert.equal((await page.getByRole("status").textContent())?.trim(), "1 error.");
      await page.keyboard.press("Tab");
      assert.equal(await page.locator(":focus").textContent(), "Skip to content");
      const button = page.getByRole("button", { name: "Copy: Command" });
      await button.focus();
      await page.keyboard.press("Enter");
      await page.locator("#copy-command-1", { hasText: "Copied" }).waitFor();
      assert.match(await page.evaluate<string>("navigator.clipboard.readText()"), /^kill -HUP \d+$/);
      assert.deepEqual(problems, []);
      await page.context().close();
    });

    test("updates times without disturbing a selection or the focus", async () => {
      const { page } = await openPage(browser(), managed.admin);
      await isLive(page);
      const clock = page.locator("#keys time.relative").first();
      const at = Date.parse((await clock.getAttribute("datetime")) ?? "");
      const before = await clock.textContent();
      await eventually("the time is updated", async () => (await clock.textContent()) !== before);
      const next = await clock.textContent();
      const seconds = Array.from(
        { length: 60 },
        (_, second) => `${durationText(Date.now() - at - second * 1_000)} ago`,
      );
      assert.ok(seconds.includes(next ?? ""), `${next}`);

      await page.evaluate(`
      getSelection().selectAllChildren(document.querySelector("#jwks-headers"));
      document.getElementById("copy-jwks-document").focus();
      show(waiting.set("jwks", document.getElementById("jwks").innerHTML + "<p>new</p>"));
    `);
      assert.equal(await page.getByText("new", { exact: true }).count(), 0, "while it is selected");
      await page.evaluate("getSelection().removeAllRanges()");
      await page.getByText("new", { exact: true }).waitFor();
      assert.equal(await page.locator(":focus").getAttribute("id"), "copy-jwks-document");
      await page.context().close();
    });

    test("reports that the service is gone and keeps its last content", async () => {
      const { page } = await openPage(browser(), files.admin);
      await isLive(page);
      await files.service.stop();
      await page.locator("#live", { hasText: "The service is not responding. Retrying." }).waitFor();
      assert.match((await page.locator("#health").textContent()) ?? "", /The key files were rejected/);
      await page.context().close();
    });
  });
}
