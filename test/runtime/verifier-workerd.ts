import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { bundledText } from "../support/bundle.ts";
import { portsOf } from "../support/ports.ts";
import { temporaryFolder } from "../support/service.ts";
import { type RotatingOp, audience } from "../support/verifier-op.ts";
import type { Verifier } from "../support/verifier-run.ts";
import { verifyWithoutPause } from "../support/verifier.ts";
import { jsonBinding, workerdCommand } from "../support/workerd.ts";

const worker = fileURLToPath(new URL("verifier-worker.ts", import.meta.url));

export interface WorkerdOptions {
  readonly compatibilityDate: string;
  /** Part of the worker that creates its key set. */
  readonly createdBy?: "module" | "first request";
  readonly state?: unknown;
  readonly timeoutMs?: number;
}

/** Starts a worker that verifies tokens, in its own process. Returns its URL. */
export async function startWorkerd(
  t: TestContext,
  { issuer }: RotatingOp,
  { compatibilityDate, createdBy = "first request", state = null, timeoutMs = 5_000 }: WorkerdOptions,
): Promise<string> {
  const settings = jsonBinding("settings", { issuer, audience, createdBy, state, timeoutMs });
  const script = await bundledText(worker, "--external", "cloudflare:workers");
  const verifier = { script, bindings: [settings], date: compatibilityDate };
  const [port] = await portsOf(t, await workerdCommand(await temporaryFolder(t), { verifier }, { verifier: 0 }));
  return `http://127.0.0.1:${port}`;
}

/** Sends a token. Throws an error with the worker's code. */
export async function sendToken(url: string, token: string): Promise<void> {
  const response = await fetch(url, { method: "POST", body: token });
  const code = await response.text();
  if (!response.ok) throw Object.assign(new Error(code), { code });
}

/** Returns a verifier that sends each token to the worker in a separate request. */
export function workerdVerifier(t: TestContext, op: RotatingOp, options: WorkerdOptions): Verifier {
  return async (next) => {
    const url = await startWorkerd(t, op, options);
    const report = await verifyWithoutPause(next, (token) => sendToken(url, token));
    return { ...report, state: await (await fetch(url)).json() };
  };
}
