import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { binary, bundledText } from "../support/bundle.ts";
import { portsOf } from "../support/ports.ts";
import { temporaryFolder } from "../support/service.ts";
import type { Setup } from "./guards.ts";
import type { StartFace } from "./node-faces.ts";

const script = fileURLToPath(new URL("serve.ts", import.meta.url));
const worker = fileURLToPath(new URL("worker.ts", import.meta.url));

const process =
  (face: string, ...command: readonly [string, ...string[]]): StartFace =>
  (t, setup) =>
    portsOf(t, [...command, script, face, JSON.stringify(setup)]).then(([port]) => port as number);

const workerd =
  (face: string): StartFace =>
  async (t, setup: Setup) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, "worker.js"), await bundledText(worker, "--external", "cloudflare:workers"));
    const { issuer, other, down } = setup;
    await writeFile(
      join(folder, "config.capnp"),
      `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [ (name = "api", worker = .api), (name = "internet", network = (allow = ["local"])) ],
  sockets = [ (name = "http", address = "127.0.0.1:0", http = (), service = "api") ],
);
const api :Workerd.Worker = (
  modules = [ (name = "worker", esModule = embed "worker.js") ],
  bindings = [
    (name = "face", text = "${face}"),
    (name = "setup", json = ${JSON.stringify(JSON.stringify({ issuer, other, down }))}),
  ],
  compatibilityDate = "2026-10-01",
);`,
    );
    const [port] = await portsOf(t, [binary("workerd"), "serve", "--control-fd=1", join(folder, "config.capnp")]);
    return port as number;
  };

/** What a namespace of Workers KV answers to workerd. */
const kv = `const kept = new Map();
export default {
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (request.method === "PUT") kept.set(pathname, await request.text());
    return kept.has(pathname) ? new Response(kept.get(pathname)) : new Response("", { status: 404 });
  },
};`;

/** Two workers of one script with one namespace of Workers KV, as two places of Cloudflare run it. */
export async function startWorkers(t: TestContext, path: string): Promise<number[]> {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, "worker.js"), await bundledText(path, "--external", "cloudflare:workers"));
  await writeFile(join(folder, "kv.js"), kv);
  await writeFile(
    join(folder, "config.capnp"),
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "one", worker = .api), (name = "two", worker = .api), (name = "kv", worker = .kv),
    (name = "internet", network = (allow = ["local"])),
  ],
  sockets = [
    (name = "first", address = "127.0.0.1:0", http = (), service = "one"),
    (name = "second", address = "127.0.0.1:0", http = (), service = "two"),
  ],
);
const api :Workerd.Worker = (
  modules = [ (name = "worker", esModule = embed "worker.js") ],
  bindings = [ (name = "KEYS", kvNamespace = "kv") ],
  compatibilityDate = "2026-10-01",
);
const kv :Workerd.Worker = (
  modules = [ (name = "kv", esModule = embed "kv.js") ],
  compatibilityDate = "2026-10-01",
);`,
  );
  return portsOf(t, [binary("workerd"), "serve", "--control-fd=1", join(folder, "config.capnp")], 2);
}

const deno = ["run", "--no-prompt", "--allow-net=127.0.0.1", "--allow-read", "--allow-env"] as const;

/** The API in other runtimes than Node. */
export const otherRuntimes: Readonly<Record<string, StartFace>> = {
  "Hono on Bun": process("hono", binary("bun")),
  "check() on Bun": process("check", binary("bun")),
  "Hono on Deno": process("hono", binary("deno"), ...deno),
  "check() on Deno": process("check", binary("deno"), ...deno),
  "Hono on workerd": workerd("hono"),
  "check() on workerd": workerd("check"),
};
