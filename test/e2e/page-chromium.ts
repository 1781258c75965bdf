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

/** How far a page is wider than its window, in pixels. */
const overflow = (page: Page): Promise<number> =>
  page.evaluate<number>("document.documentElement.scrollWidth - window.innerWidth");

/** Returns the width of the narrowest cell with a kid or another long word, of all tables, in pixels. */
const narrowestCell = (page: Page): Promise<number> =>
  page.evaluate<number>(
    'Math.min(...Array.from(document.querySelectorAll("tbody :is(th, td):has(code)"), (cell) => cell.clientWidth))',
  );

/** @param browser which is there when the tests run */
export function checkPage(browser: () => Browser): void {
  describe("the page of the admin address", () => {
    const scope: (() => Promise<void>)[] = [];
    let data: string;
    /** A rotation is going on in its store. */
    let managed: Served;
    /** Its keys have hostile names, and newer ones were refused. */
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
      await files.service.logged(({ msg }) => msg.startsWith("new keys refused"));
    });
    after(async () => {
      for (const end of scope) await end();
    });

    test("shows a rotation live, without a reload", async (t) => {
      const { page, wrongs } = await openPage(browser(), managed.admin);
      await isLive(page);
      await page.evaluate("window.isSame = true");
      const key = await keyFor(await wrappingKeyOf(data));
      const { doneMs } = await commandStore(join(data, "keys.db"), { type: "rotate", use: "sig", key });
      for (const part of ["#keys", "#timeline", "#answer", "#events"]) {
        await page.locator(part, { hasText: key.kid }).waitFor();
      }
      t.diagnostic(`seen ${Math.round(performance.now() - doneMs)} ms after the commit`);
      await page.locator("#glance", { hasText: "on: caches keep the set for 5 minutes" }).waitFor();
      assert.equal(await page.evaluate("window.isSame"), true);
      assert.deepEqual(wrongs, []);
      await page.context().close();
    });

    test("is whole without its script", async () => {
      const { page } = await openPage(browser(), managed.admin, { javaScriptEnabled: false });
      for (const heading of ["Health", "At a glance", "Timeline", "Keys", "Replicas", "Last events"]) {
        assert.ok(await page.getByRole("region", { name: heading, exact: true }).isVisible(), heading);
      }
      assert.match(
        (await page.locator("#answer").textContent()) ?? "",
        /200 OK\s[^]*content-type: application\/jwk-set/,
      );
      assert.match((await page.locator("#live").textContent()) ?? "", /^\s*As of\s+\d{4}-/);
      assert.equal(await page.getByRole("button").count(), 0, "what needs the script is not there");
      await page.context().close();
    });

    for (const [name, served] of [
      ["during a rotation", () => managed],
      ["with a fault and hostile names", () => files],
    ] as const) {
      test(`${name}: fits a telephone and a wide screen, light and dark, for everybody`, async () => {
        const { page, wrongs } = await openPage(browser(), served().admin);
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
        assert.deepEqual(wrongs, []);
        await page.context().close();
      });
    }

    test("says what is wrong, and a key press copies the command that mends it", async () => {
      const { page, wrongs } = await openPage(browser(), files.admin, {
        permissions: ["clipboard-read", "clipboard-write"],
      });
      await isLive(page);
      assert.equal((await page.getByRole("status").textContent())?.trim(), "1 error.");
      await page.keyboard.press("Tab");
      assert.equal(await page.locator(":focus").textContent(), "Skip to the content");
      const button = page.getByRole("button", { name: "Copy: Command" });
      await button.focus();
      await page.keyboard.press("Enter");
      await page.locator("#copy-command-1", { hasText: "Copied" }).waitFor();
      assert.match(await page.evaluate<string>("navigator.clipboard.readText()"), /^kill -HUP \d+$/);
      assert.deepEqual(wrongs, []);
      await page.context().close();
    });

    test("shows times anew, and leaves alone what is selected or focused", async () => {
      const { page } = await openPage(browser(), managed.admin);
      await isLive(page);
      const clock = page.locator("#keys time.relative").first();
      const at = Date.parse((await clock.getAttribute("datetime")) ?? "");
      const shown = await clock.textContent();
      await eventually("another time", async () => (await clock.textContent()) !== shown);
      const next = await clock.textContent();
      const seconds = Array.from(
        { length: 60 },
        (_, second) => `${durationText(Date.now() - at - second * 1_000)} ago`,
      );
      assert.ok(seconds.includes(next ?? ""), `${next}`);

      await page.evaluate(`
      getSelection().selectAllChildren(document.querySelector("#answer-head"));
      document.getElementById("copy-answer-body").focus();
      show(waiting.set("answer", document.getElementById("answer").innerHTML + "<p>new</p>"));
    `);
      assert.equal(await page.getByText("new", { exact: true }).count(), 0, "while it is selected");
      await page.evaluate("getSelection().removeAllRanges()");
      await page.getByText("new", { exact: true }).waitFor();
      assert.equal(await page.locator(":focus").getAttribute("id"), "copy-answer-body");
      await page.context().close();
    });

    test("says that the service is gone, and keeps what it showed", async () => {
      const { page } = await openPage(browser(), files.admin);
      await isLive(page);
      await files.service.stop();
      await page.locator("#live", { hasText: "The service does not answer. It is asked again." }).waitFor();
      assert.match((await page.locator("#health").textContent()) ?? "", /The key files were refused/);
      await page.context().close();
    });
  });
}
