import axe from "axe-core";
import { type Browser, type BrowserContextOptions, type Page, chromium } from "playwright-core";
import { part } from "./parts.ts";

/** A page in a browser, and what it should not do. */
export interface Opened {
  readonly page: Page;
  /** What broke the Content Security Policy, what was logged as an error, and requests to anywhere but the origin. */
  readonly wrongs: readonly string[];
}

/** The browser of the system, without windows: it takes less than half of the CPU time of one that has some. Pages can be driven over it; see `chromium.ts` for one that only runs a script. */
export function startBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: part("chromium-headless-shell"), args: ["--no-sandbox", "--disable-gpu"] });
}

/** Opens a page in a context of its own. */
export async function openPage(browser: Browser, url: URL, options: BrowserContextOptions = {}): Promise<Opened> {
  const context = await browser.newContext(options);
  const wrongs: string[] = [];
  context.on("request", (request) => {
    const to = new URL(request.url());
    if (to.origin !== url.origin && to.protocol !== "data:") wrongs.push(`request: ${request.url()}`);
  });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (message.type() === "error") wrongs.push(message.text());
  });
  page.on("pageerror", (error) => wrongs.push(error.message));
  if (options.javaScriptEnabled !== false) {
    await page.exposeFunction("tellViolation", (text: string) => wrongs.push(text));
    await page.addInitScript(`
      document.addEventListener("securitypolicyviolation", (event) =>
        tellViolation("CSP: " + event.violatedDirective + " " + event.blockedURI));
    `);
  }
  await page.goto(url.href);
  return { page, wrongs };
}

/** Rules of accessibility that a page breaks, each with its elements. @see https://github.com/dequelabs/axe-core */
export async function brokenRules(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  // Of elements that break no rule it would make up descriptions, too.
  const run = 'axe.run({ resultTypes: ["violations"] })';
  const { violations } = await page.evaluate<{ violations: { id: string; nodes: { html: string }[] }[] }>(run);
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}
