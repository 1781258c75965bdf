import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { glob, readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { dirname, extname, join, resolve } from "node:path";
import { describe, test } from "node:test";
import type { Browser } from "playwright-core";
import { openPage } from "../support/browser.ts";
import { listening } from "../support/listening.ts";
import { skipped } from "../support/parts.ts";

const site = resolve(import.meta.dirname, "../../.site");
const mount = "/some/where/";
const types: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".png": "image/png",
};
const isMissing = !existsSync(join(site, "index.html")) && !process.env["CI"];
const skip = isMissing && skipped("the documentation site was not built; build it with: npm run docs");

/** Tests the documentation site, as any file server serves it below any path. */
export function checkSite(browser: () => Browser): void {
  describe("the documentation site in Chromium", { skip }, () => {
    test("finds pages, decisions and the reference, below any path and without requests to other servers", async (t) => {
      const missing: string[] = [];
      const server = createServer(async (request, response) => {
        const path = new URL(request.url ?? "", "http://localhost").pathname;
        // Browsers request this automatically.
        if (path === "/favicon.ico") {
          response.writeHead(204).end();
          return;
        }
        const file = join(site, path.replace(mount, "/"));
        const body = path.startsWith(mount) ? await readFile(file).catch(() => undefined) : undefined;
        if (body === undefined) missing.push(path);
        response
          .writeHead(body === undefined ? 404 : 200, { "Content-Type": types[extname(file)] ?? "text/plain" })
          .end(body);
      });
      const port = await listening(t, server);
      const { page, problems } = await openPage(browser(), new URL(`http://127.0.0.1:${port}${mount}pages/faq.html`));
      for (const [word, found, path] of [
        ["createRemoteKeySet", "createRemoteKeySet", "functions/"],
        ["leases", "44. A process is a cache of the store, and a store is one document", "pages/0044-"],
        // Only the page's text contains this word.
        ["PgBouncer", "Keys in PostgreSQL", "pages/store-postgres.html"],
      ] as const) {
        await page.locator("#tsd-search-trigger").click();
        await page.locator("#tsd-search-input").fill(word);
        const link = page.locator("#tsd-search-results a", { hasText: found }).first();
        await link.click();
        await page.waitForURL(`**${mount}${path}*`);
        assert.match((await page.locator("h1").first().textContent()) ?? "", new RegExp(found), page.url());
      }
      assert.deepEqual([problems, missing], [[], []]);
      await page.context().close();
    });

    test("every link points to an existing place on the site or to an https URL, and nothing is loaded from elsewhere", async () => {
      const documents = new Map<string, string>();
      for await (const file of glob("**/*.{html,svg}", { cwd: site }))
        documents.set(join(site, file), await readFile(join(site, file), "utf8"));
      const hasPlace = (file: string, id: string): boolean => documents.get(file)?.includes(` id="${id}"`) === true;
      const broken: string[] = [];
      for (const [file, text] of documents) {
        for (const [, kind = "", link = ""] of text.matchAll(/<[^>]*? (href|src)="([^"]+)"/g)) {
          const [path = "", place = ""] = link.split("#");
          const target = path === "" ? file : join(dirname(file), path);
          const isThere = URL.canParse(link)
            ? kind === "href" && /^https:\/\/|^http:\/\/127\.0\.0\.1:/.test(link)
            : // A file server need not serve the index of a folder.
              !/^\/|\/$/.test(path) && existsSync(target) && (place === "" || hasPlace(target, place));
          if (!isThere) broken.push(`${file}: ${link}`);
        }
      }
      assert.deepEqual(broken, []);
    });
  });
}
