import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createProvider, localSigner } from "../src/index.ts";
import type { Plan } from "./comparisons.ts";
import { median, start } from "./measure.ts";
import { type Section, table } from "./report.ts";

const main = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
const echoServer = fileURLToPath(new URL("servers/echo-socket.ts", import.meta.url));
const generator = fileURLToPath(new URL("socket-load.ts", import.meta.url));
const run = promisify(execFile);
const counts = [1, 16, 64];
const roundMs = 1_000;
const claims = { sub: "alice", aud: "my-api" };
const body = JSON.stringify({ claims, lifetimeSeconds: 300 });
const request = `POST /sign HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
const bothCores = "0,1";

interface Round {
  readonly perSecond: number;
  readonly p99Ms: number;
}

/** Runs tasks concurrently, each in a loop, and returns their rate and latency. */
async function measure(tasks: readonly (() => Promise<unknown>)[]): Promise<Round> {
  const startMs = performance.now();
  const latencies: number[] = [];
  const loop = async (task: () => Promise<unknown>): Promise<void> => {
    for (let last = performance.now(); last - startMs < roundMs;) {
      await task();
      const now = performance.now();
      latencies.push(now - last);
      last = now;
    }
  };
  await Promise.all(tasks.map(loop));
  return roundOf(latencies, (performance.now() - startMs) / 1000);
}

function roundOf(latencies: readonly number[], seconds: number): Round {
  const sorted = latencies.toSorted((a, b) => a - b);
  return { perSecond: latencies.length / seconds, p99Ms: sorted[Math.floor(latencies.length * 0.99)] ?? Number.NaN };
}

/** Sends requests on this many connections concurrently. */
async function over(path: string, count: number): Promise<Round> {
  const { stdout } = await run("bun", [generator, path, String(count), String(roundMs), request], {
    maxBuffer: Infinity,
  });
  const { latencies, seconds } = JSON.parse(stdout) as { latencies: number[]; seconds: number };
  return roundOf(latencies, seconds);
}

/** Compares the rate of signing tokens over a socket with signing alone and `node:http` alone. */
export async function signSocket({ rounds }: Plan): Promise<Section> {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-bench-sign-"));
  const paths = { sign: join(folder, "sign.sock"), echo: join(folder, "echo.sock") };
  const serve = ["serve", "--port", "0", "--admin", "off", "--json-logs", "--data", join(folder, "data")];
  const servers = [
    await start([process.execPath, main, ...serve, "--sign-socket", paths.sign], bothCores),
    await start([process.execPath, echoServer, paths.echo], bothCores),
  ];
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
  const keyset = [{ kid: "key", signer: await localSigner(pair) }];
  const provider = await createProvider({ issuer: "https://login.example.com", keyset });
  const contestants: Readonly<Record<string, (count: number) => Promise<Round>>> = {
    "POST /sign over a Unix socket": (count) => over(paths.sign, count),
    "bare node:http echo over a Unix socket": (count) => over(paths.echo, count),
    "provider.sign in process": (count) =>
      measure(Array.from({ length: count }, () => () => provider.sign(claims, { lifetimeSeconds: 300 }))),
  };
  try {
    const rows: string[][] = [];
    for (const run of Object.values(contestants)) {
      for (let round = 0; round < 3; round += 1) await run(Math.max(...counts));
    }
    for (const count of counts) {
      const results = new Map(Object.keys(contestants).map((name) => [name, [] as Round[]]));
      for (let round = -1; round < rounds; round += 1) {
        for (const [name, run] of Object.entries(contestants)) {
          const result = await run(count);
          // The first round of each count is a warm-up.
          if (round >= 0) results.get(name)?.push(result);
        }
      }
      for (const [name, rounds] of results) {
        const rate = Math.round(median(rounds.map(({ perSecond }) => perSecond)));
        const p99 = median(rounds.map(({ p99Ms }) => p99Ms)).toFixed(2);
        rows.push([name, String(count), rate.toLocaleString("en"), p99]);
      }
    }
    return { title: "Sign socket", text: table(["", "at once", "per second", "p99 ms"], rows), goals: [] };
  } finally {
    for (const server of servers) await server.stop();
    await rm(folder, { recursive: true });
  }
}
