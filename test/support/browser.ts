import axe from "axe-core";
import { type Browser, type BrowserContextOptions, type Page, chromium } from "playwright-core";
import { part } from "./parts.ts";

/** A page in a browser, with its problems. */
export interface Opened {
  readonly page: Page;
  /** Violations of the Content Security Policy, logged errors, and requests to other origins. */
  readonly problems: readonly string[];
}

/** Starts the system's browser, headless because that takes less than half the CPU time. Its pages can be driven; see `chromium.ts` for a browser that only runs a script. */
export function startBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: part("chromium-headless-shell"), args: ["--no-sandbox", "--disable-gpu"] });
}

/** Opens a page in its own context. */
export async function openPage(browser: Browser, url: URL, options: BrowserContextOptions = {}): Promise<Opened> {
  const context = await browser.newContext(options);
  const problems: string[] = [];
  context.on("request", (request) => {
    const to = new URL(request.url());
    if (to.origin !== url.origin && to.protocol !== "data:") problems.push(`request: ${request.url()}`);
  });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(error.message));
  if (options.javaScriptEnabled !== false) {
    await page.exposeFunction("reportViolation", (text: string) => problems.push(text));
    await page.addInitScript(`
      document.addEventListener("securitypolicyviolation", (event) =>
        reportViolation("CSP: " + event.violatedDirective + " " + event.blockedURI));
    `);
  }
  await page.goto(url.href);
  return { page, problems };
}

/** Returns the accessibility rules that a page breaks, each with its elements. @see https://github.com/dequelabs/axe-core */
export async function brokenRules(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  // By default, it would also describe elements that break no rule.
  const run = 'axe.run({ resultTypes: ["violations"] })';
  const { violations } = await page.evaluate<{ violations: { id: string; nodes: { html: string }[] }[] }>(run);
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}
