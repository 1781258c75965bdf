import type { TestContext } from "node:test";
import type { Browser } from "playwright-core";
import { bundledText } from "./bundle.ts";
import type { RotatingOp } from "./verifier-op.ts";
import { type Verifier, type VerifierOptions, startControl } from "./verifier-run.ts";

/** Creates a verifier that is a page with a different origin than the provider, in a new browser context. */
export function pageVerifier(
  t: TestContext,
  browser: Browser,
  op: Pick<RotatingOp, "issuer">,
  script: string,
  options: VerifierOptions = {},
): Verifier {
  return async (next) => {
    const { origin, report } = await startControl(t, op, next, options, await bundledText(script));
    const context = await browser.newContext();
    t.after(() => context.close());
    const page = await context.newPage();
    const failed = new Promise<never>((_, reject) => void page.on("pageerror", reject));
    await page.goto(origin);
    return Promise.race([report, failed]);
  };
}
