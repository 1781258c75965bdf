import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Plan, program } from "./comparisons.ts";
import { type Contestant, type Result, type Server, alternate, start } from "./measure.ts";
import { type Section, comparisonTable } from "./report.ts";

const binary = (name: string): string => fileURLToPath(new URL(`../node_modules/.bin/${name}`, import.meta.url));

/** Compares a Worker with keys on demand to one whose key is a constant, in workerd. */
export async function workers({ rounds }: Plan): Promise<Section> {
  const folder = mkdtempSync(join(tmpdir(), "jwksd-bench-"));
  try {
    execFileSync(binary("bun"), [
      "build",
      program("worker"),
      "--external=cloudflare:workers",
      `--outfile=${join(folder, "worker.js")}`,
    ]);
    const servers = { constant: await startWorker(folder, "constant"), jwksd: await startWorker(folder, "jwksd") };
    const [gets, signs] = [await compared(servers, "jwks", rounds), await compared(servers, "token", rounds)];
    for (const server of Object.values(servers)) await server.stop();
    const tables = [gets, signs].map((results) => comparisonTable(results, results[0] as Result));
    const text = ["GET of the set:", tables[0], "A signed token:", tables[1]].join("\n\n");
    return { title: "Workers: keys on demand in a Durable Object", text, goals: [] };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

type Variant = "constant" | "jwksd";

async function startWorker(folder: string, variant: Variant): Promise<Server> {
  const disk = join(folder, variant);
  mkdirSync(disk);
  const wrappingKey = Buffer.alloc(32, 1).toString("base64url");
  const config = join(folder, `${variant}.capnp`);
  writeFileSync(
    config,
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [ (name = "worker", worker = .worker), (name = "disk", disk = (path = "${disk}", writable = true)) ],
  sockets = [ (name = "http", address = "127.0.0.1:0", http = (), service = "worker") ],
);
const worker :Workerd.Worker = (
  modules = [ (name = "worker", esModule = embed "worker.js") ],
  bindings = [
    (name = "variant", text = "${variant}"),
    (name = "WRAPPING_KEYS", text = "${wrappingKey}"),
    (name = "KEYS", durableObjectNamespace = "KeysObject"),
  ],
  durableObjectNamespaces = [ (className = "KeysObject", uniqueKey = "keys", enableSql = true) ],
  durableObjectStorage = (localDisk = "disk"),
  compatibilityDate = "2026-10-01",
);`,
  );
  return start([binary("workerd"), "serve", "--control-fd=1", config]);
}

async function compared(
  servers: Readonly<Record<Variant, Server>>,
  path: string,
  rounds: number,
): Promise<readonly Result[]> {
  const contestants: Contestant[] = [];
  for (const [variant, server] of Object.entries(servers)) {
    const url = new URL(path, server.url).href;
    const response = await fetch(url);
    if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
    const name = variant === "jwksd" ? "jwksd, on demand" : "key in a constant";
    contestants.push({ name, server: { ...server, url }, headers: {} });
  }
  return alternate(contestants, rounds);
}
