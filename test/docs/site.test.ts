import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import type { Browser, Page } from "playwright-core";
import { startBrowser } from "../support/browser.ts";
import { skipWithout, skipped } from "../support/parts.ts";
import { isSoak } from "../support/soak.ts";

const root = resolve(import.meta.dirname, "../..");
const site = join(root, ".site");
const address = (file: string): string => pathToFileURL(join(site, file)).href;

/** Skips if the site is missing or outdated, because an old site shows old pages. */
function skipWithoutSite(): string | false {
  if (process.env["CI"]) return false;
  const builtAt = existsSync(join(site, "index.html")) ? statSync(join(site, "index.html")).mtimeMs : 0;
  const sources = globSync(["*.md", "docs/**", "scripts/docs*"], { cwd: root });
  if (sources.every((file) => statSync(join(root, file)).mtimeMs < builtAt)) return false;
  return skipped("the site is not built, or older than its pages; build it with: npm run docs");
}

describe("the site", { skip: skipWithoutSite() || skipWithout("chromium-headless-shell"), timeout: 120_000 }, () => {
  let browser: Browser;
  before(async () => {
    browser = await startBrowser();
  });
  after(() => browser.close());

  // This takes several seconds of two processors, so only npm run soak does it.
  if (isSoak)
    test("on a phone, no page is wider than the screen, each page has one title, and images are not shrunk", async () => {
      const page = await browser.newPage({ viewport: { width: 390, height: 844 }, javaScriptEnabled: false });
      const wrong: string[] = [];
      for (const file of globSync("{,pages/,modules/,functions/}*.html", { cwd: site })) {
        await page.goto(address(file), { waitUntil: "load" });
        const [width, titles, scale] = await page.evaluate<[number, number, number]>(`[
        document.documentElement.scrollWidth,
        document.querySelectorAll("h1").length,
        Math.min(1, ...Array.from(document.images, (image) => image.width / image.naturalWidth)),
      ]`);
        if (width > 390 || titles !== 1 || scale < 0.75) wrong.push(`${file}: ${width} px, ${titles} titles, ${scale}`);
      }
      assert.deepEqual(wrong, []);
    });

  test("the menu lists the pages in the same order as docs/README.md", async () => {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    await page.goto(address("index.html"));
    await page.locator("#tsd-nav-container a").first().waitFor({ state: "attached" });
    const hrefs = await page.evaluate<string[]>(
      `Array.from(document.querySelectorAll("#tsd-nav-container a"), (a) => a.getAttribute("href"))`,
    );
    const files = hrefs.map((href) => /pages\/(.+)\.html$/.exec(href)?.[1]).filter((file) => file !== undefined);
    const [pages = ""] = readFileSync(join(root, "docs/README.md"), "utf8").split("## Decisions");
    const listed = pages.matchAll(/^- \[.+?\]\((?:\S+\/)?(\S+?)\.md\)/gm);
    assert.deepEqual(files, ["index", ...Array.from(listed, ([, file]) => file)]);
    const modules = hrefs.filter((href) => href.includes("modules/")).map((href) => href.replace(/.*modules\//, ""));
    assert.deepEqual(modules.slice(0, 2), ["jwksd.html", "jwksd_rotation.html"]);
  });

  /** URLs of guides. Searches must find a guide first, unless they are the whole name of something else. */
  const guide =
    /^\.\/(?:index|pages\/(?:provider|clients|relying-party|sign-socket|service|operations|emergencies|alerts|publish|workload-identity|replicas|backups|stores|store-postgres|signers|doctor|faq|install|migrate))\.html/;
  const searches: Readonly<Record<string, RegExp>> = {
    rotate: guide,
    "rotate now": guide,
    revoke: guide,
    stop: guide,
    HSM: /^\.\/pages\/signers\.html/,
    signer: guide,
    verify: guide,
    kid: guide,
    "wrapping key": /#wrapping-keys$/,
    leaked: /#a-leaked-key$/,
    install: guide,
    createProvider: /functions\/jwksd\.createProvider\.html$/,
    ClosableRegister: /interfaces\/jwksd_store\.ClosableRegister\.html$/,
    JwksdClockSkew: /alerts\.html#jwksdclockskew$/,
  };

  test("the search lists sections of guides first, unless the input is the exact name of something else", async () => {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    await page.goto(address("index.html"));
    await page.locator("#tsd-search-trigger").click();
    await page.locator("#tsd-search-status:empty").waitFor({ state: "attached" });
    const found: string[] = [];
    for (const [words, expected] of Object.entries(searches)) {
      const first = await firstResult(page, words);
      if (!expected.test(first)) found.push(`${words}: ${first}`);
      const [file = "", anchor] = first.split("#");
      const html = readFileSync(join(site, file), "utf8");
      if (anchor !== undefined && !html.includes(`id="${anchor}"`)) found.push(`${words}: ${first} has a wrong anchor`);
    }
    assert.deepEqual(found, []);
  });
});

/** Returns the first result. Results appear some time after the input, and all are replaced. */
async function firstResult(page: Page, words: string): Promise<string> {
  await page.evaluate(`document.getElementById("tsd-search-results").innerHTML = ""`);
  await page.locator("#tsd-search-input").fill(words);
  const link = page.locator("#tsd-search-results a").first();
  await link
    .waitFor({ state: "attached", timeout: 20_000 })
    .catch((cause: unknown) => assert.fail(`${words}: ${String(cause)}`));
  return (await link.getAttribute("href")) ?? "";
}
