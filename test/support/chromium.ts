import { join } from "node:path";
import type { TestContext } from "node:test";
import { part } from "./parts.ts";
import { temporaryFolder } from "./service.ts";
import type { RotatingOp } from "./verifier-op.ts";
import { bundle } from "./bundle.ts";
import { type Verifier, type VerifierOptions, processVerifier } from "./verifier-run.ts";

const flags = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** A page of another origin than the provider, in a browser that has never been anywhere. */
export async function startPage(
  t: TestContext,
  op: Pick<RotatingOp, "issuer">,
  script: string,
  options: VerifierOptions = {},
): Promise<Verifier> {
  const folder = await temporaryFolder(t);
  const bundled = join(folder, "page.js");
  await bundle(script, bundled);
  const command = [part("chromium"), ...flags, `--user-data-dir=${join(folder, "profile")}`] as const;
  return processVerifier(t, op, command, { ...options, script: bundled });
}
