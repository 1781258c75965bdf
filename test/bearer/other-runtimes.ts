import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { binary, bundledText } from "../support/bundle.ts";
import { portsOf } from "../support/ports.ts";
import { temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { jsonBinding, kvBinding, textBinding, workerdCommand } from "../support/workerd.ts";
import type { StartAdapter } from "./node-adapters.ts";

const script = fileURLToPath(new URL("serve.ts", import.meta.url));
const worker = fileURLToPath(new URL("worker.ts", import.meta.url));

const process =
  (adapter: string, ...command: readonly [string, ...string[]]): StartAdapter =>
  (t, setup) =>
    portsOf(t, [...command, script, adapter, JSON.stringify(setup)]).then(([port]) => port as number);

const bundle = (path: string): Promise<string> => bundledText(path, "--external", "cloudflare:workers");

const workerd =
  (adapter: string): StartAdapter =>
  async (t, { issuer, other, down }) => {
    const bindings = [textBinding("adapter", adapter), jsonBinding("setup", { issuer, other, down })];
    const api = { script: await bundle(worker), bindings };
    const [port] = await portsOf(t, await workerdCommand(await temporaryFolder(t), { api }, { api: 0 }));
    return port as number;
  };

/** Script of a Workers KV namespace for workerd. */
const kv = `const kept = new Map();
export default {
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (request.method === "PUT") kept.set(pathname, await request.text());
    return kept.has(pathname) ? new Response(kept.get(pathname)) : new Response("", { status: 404 });
  },
};`;

/** Starts two workers with the same script and Workers KV namespace, as in two Cloudflare locations. Returns their ports. */
export async function startWorkers(t: TestContext, path: string): Promise<number[]> {
  const location = { script: await bundle(path), bindings: [kvBinding("KEYS", "kv")] };
  const workers = { one: location, two: location, kv: { script: kv, bindings: [] } };
  return portsOf(t, await workerdCommand(await temporaryFolder(t), workers, { one: 0, two: 0 }), 2);
}

const deno = ["run", "--no-prompt", "--allow-net=127.0.0.1", "--allow-read", "--allow-env"] as const;

const upgrades = fileURLToPath(new URL("refuse-upgrades.ts", import.meta.url));

/** Commands that start a `node:http` server that refuses every upgrade. */
export const upgradeServers: Readonly<Record<string, readonly [string, ...string[]]>> = {
  Node: [binary("node"), upgrades],
  Bun: [binary("bun"), upgrades],
  Deno: [binary("deno"), ...deno, upgrades],
};

const adapters: Readonly<Record<string, StartAdapter>> = {
  "Hono on Bun": process("hono", binary("bun")),
  "check() on Deno": process("check", binary("deno"), ...deno),
  "Hono on workerd": workerd("hono"),
  "check() on Bun": process("check", binary("bun")),
  "Hono on Deno": process("hono", binary("deno"), ...deno),
  "check() on workerd": workerd("check"),
};

/** The API in runtimes other than Node: in `npm test`, one adapter in each. */
export const otherRuntimes = Object.fromEntries(Object.entries(adapters).slice(0, soak(6, 3)));
