import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Plan, keys, runtime, servers } from "./comparisons.ts";
import { doctor } from "./doctor.ts";
import { flood } from "./flood.ts";
import { guard } from "./guard.ts";
import { issuers } from "./issuers.ts";
import { stopAll } from "./measure.ts";
import { memory } from "./memory.ts";
import { metrics } from "./metrics.ts";
import { proxyGuards } from "./proxies.ts";
import { publishing } from "./publishing.ts";
import { replicas } from "./replicas.ts";
import { type Section, goalsTable, machine } from "./report.ts";
import { rotation } from "./rotation.ts";
import { signSocket } from "./sign-socket.ts";
import { signers } from "./signers.ts";
import { starts } from "./starts.ts";
import { signing, verification } from "./tokens.ts";
import { workers } from "./workers.ts";

const sections: Readonly<Record<string, (plan: Plan) => Promise<Section>>> = {
  servers,
  keys,
  bun: (plan) => runtime("Bun", plan),
  deno: (plan) => runtime("Deno", plan),
  memory,
  verification,
  signing,
  guard,
  proxies: proxyGuards,
  publishing,
  signers,
  "sign-socket": signSocket,
  metrics,
  flood,
  rotation,
  replicas,
  issuers,
  doctor,
  start: starts,
  workers,
};
const usage = `npm run bench -- [options]

  --only NAME   one section; can be repeated: ${Object.keys(sections).join(", ")}
  --quick       one round each, about a minute: shows that it works, and little more
  --write       puts the report into docs/benchmarks.md
`;

const { values: options } = parseArgs({
  options: {
    only: { type: "string", multiple: true },
    quick: { type: "boolean", default: false },
    write: { type: "boolean", default: false },
    help: { type: "boolean", short: "h", default: false },
  },
});
const wanted = options.only ?? Object.keys(sections);
const unknown = wanted.find((name) => !Object.hasOwn(sections, name));
if (options.help || unknown !== undefined || (options.write && options.only !== undefined)) {
  if (unknown !== undefined) console.error(`there is no section "${unknown}"\n`);
  if (options.write && options.only !== undefined)
    console.error("--write requires a run of all sections; remove --only\n");
  console.log(usage);
  process.exit(options.help ? 0 : 2);
}
for (const tool of ["taskset", "wrk"]) {
  if (spawnSync(tool, ["--version"]).error !== undefined) {
    console.error(`${tool} is missing; the benchmark runs on Linux with util-linux and wrk (apt-get install wrk)`);
    process.exit(2);
  }
}

const folder = mkdtempSync(join(tmpdir(), "jwksd-bench-"));
try {
  const [summary, details] = await measure();
  console.log(summary);
  if (options.write) write(`${summary}\n\n${details}`);
} finally {
  await stopAll();
  rmSync(folder, { recursive: true });
}

/** Prints each section when it is complete. The summary is last here, and first in the file. */
async function measure(): Promise<readonly [summary: string, details: string]> {
  const plan: Plan = {
    rounds: options.quick ? 1 : 7,
    memoryRequests: options.quick ? 100_000 : 1_000_000,
    fewKeys: await keyFile(2),
    manyKeys: await keyFile(100),
  };
  const loadBefore = loadavg()[0] ?? 0;
  const done: Section[] = [];
  for (const name of wanted) {
    console.error(`${name} ...`);
    const section = await (sections[name] as (plan: Plan) => Promise<Section>)(plan);
    console.log(`${inMarkdown(section)}\n`);
    done.push(section);
  }
  const summary = `Measured ${new Date().toISOString().slice(0, 10)} on ${machine(versions())} Load average before: ${loadBefore.toFixed(2)}.`;
  const goals = goalsTable(done.flatMap((section) => section.goals));
  return [`${summary}\n\n${goals}`, done.map(inMarkdown).join("\n\n")];
}

function inMarkdown({ title, text }: Section): string {
  return `### ${title}\n\n${text}`;
}

async function keyFile(count: number): Promise<string> {
  const jwks = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
      const { kty, crv, x, y, d } = await crypto.subtle.exportKey("jwk", pair.privateKey);
      // The kid is as long as a thumbprint, which is the usual kid.
      const kid = `${index}-${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString("base64url")}`.slice(
        0,
        43,
      );
      return { kty, crv, x, y, d, kid, alg: "ES256", use: "sig" };
    }),
  );
  const file = join(folder, `${count}-keys.json`);
  writeFileSync(file, JSON.stringify({ keys: jwks }), { mode: 0o600 });
  return file;
}

function versions(): Record<string, string> {
  const packages = [
    "express",
    "fastify",
    "hono",
    "@hono/node-server",
    "oidc-provider",
    "jose",
    "jwks-rsa",
    "jsonwebtoken",
    "get-jwks",
    "fast-jwt",
    "aws-jwt-verify",
    "express-oauth2-jwt-bearer",
    "express-jwt",
  ];
  return {
    Node: process.versions.node,
    Bun: printedVersion("bun", "--version"),
    Deno: printedVersion("deno", "--version"),
    wrk: printedVersion("wrk", "-v"),
    ...Object.fromEntries(packages.map((name) => [name, installedVersion(name)])),
  };
}

function printedVersion(command: string, flag: string): string {
  return /\d+(\.\d+)+/.exec(spawnSync(command, [flag], { encoding: "utf8" }).stdout)?.[0] ?? "unknown";
}

function installedVersion(name: string): string {
  const manifest = new URL(`../node_modules/${name}/package.json`, import.meta.url);
  return (JSON.parse(readFileSync(manifest, "utf8")) as { version: string }).version;
}

function write(report: string): void {
  const file = new URL("../docs/benchmarks.md", import.meta.url);
  const between = /(?<=<!-- report -->)[^]*(?=<!-- end of report -->)/;
  writeFileSync(
    file,
    readFileSync(file, "utf8").replace(between, () => `\n\n${report}\n\n`),
  );
}
