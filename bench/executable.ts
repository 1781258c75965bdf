import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Plan, serve } from "./comparisons.ts";
import { type Contestant, alternate, median, start } from "./measure.ts";
import { type Section, comparisonTable, cpuRatio, table } from "./report.ts";

const inDist = (path: string): string => fileURLToPath(new URL(`../dist/${path}`, import.meta.url));

/** A file that a build makes. */
function built(path: string, command: string): string {
  const file = inDist(path);
  if (!existsSync(file)) throw new Error(`${file} is not there; build it with: ${command}`);
  return file;
}

/** GET from the executable against the sources on Node. */
export async function executable({ fewKeys, rounds }: Plan): Promise<Section> {
  const binary = built("bin/jwksd", "npm run build:binary");
  const [, , ...args] = serve(fewKeys);
  const contestants: Contestant[] = [
    { name: "jwksd serve on Node", server: await start(serve(fewKeys)), headers: {} },
    { name: "the executable", server: await start([binary, ...args]), headers: {} },
  ];
  const results = await alternate(contestants, rounds);
  await Promise.all(contestants.map(({ server }) => server.stop()));
  const [base, ours] = results;
  if (base === undefined || ours === undefined) throw new Error("nothing was measured");
  const cost = 1 / cpuRatio(ours, base);
  return {
    title: "The executable: GET, 2 keys",
    text: comparisonTable(results, base),
    goals: [
      {
        name: "CPU of the executable to jwksd serve on Node: at most 1.2",
        reached: cost <= 1.2,
        measured: cost.toFixed(2),
      },
    ],
  };
}

/** How long commands take, from the start of the process to its end. */
export async function starts({ fewKeys, rounds }: Plan): Promise<Section> {
  const data = mkdtempSync(join(tmpdir(), "jwksd-bench-start-"));
  const ways: readonly (readonly [string, readonly string[]])[] = [
    ["the executable", [built("bin/jwksd", "npm run build:binary")]],
    ["npm", [process.execPath, built("cli/main.js", "npm run build")]],
  ];
  const issuer = ["--data", data];
  const commands: readonly (readonly string[])[] = [
    ["--version"],
    ["help", "serve"],
    ["keygen"],
    ["keys", ...issuer],
    ["plan", ...issuer],
    ["rotate", "--dry-run", ...issuer],
    ["events", ...issuer],
    ["replicas", ...issuer],
    ["token", "--aud", "api", ...issuer],
  ];
  const first = spawnSync(process.execPath, [ways[1]?.[1][1] ?? "", "keys", "import", fewKeys, ...issuer]);
  if (first.status !== 0) throw new Error(String(first.stderr));
  try {
    const rows = commands.map((command) => {
      const times = ways.map(([, [program = "", ...args]]) =>
        median(Array.from({ length: rounds * 2 }, () => milliseconds(program, [...args, ...command]))),
      );
      return { name: command.filter((word) => word !== data && word !== fewKeys).join(" "), times };
    });
    return {
      title: "Commands, from start to end",
      text: table(
        ["jwksd …", ...ways.map(([name]) => `${name}, ms`)],
        rows.map(({ name, times }) => [name, ...times.map((time) => time.toFixed(0))]),
      ),
      goals: ways.map(([way], index) => {
        const slowest = rows.toSorted((a, b) => (b.times[index] ?? 0) - (a.times[index] ?? 0))[0];
        const ms = slowest?.times[index] ?? Number.NaN;
        return {
          name: `every command of ${way}: under 150 ms`,
          reached: ms < 150,
          measured: `${ms.toFixed(0)} ms, jwksd ${slowest?.name ?? ""}`,
        };
      }),
    };
  } finally {
    rmSync(data, { recursive: true });
  }
}

function milliseconds(program: string, args: readonly string[]): number {
  const begunMs = performance.now();
  const { status, stderr } = spawnSync(program, args, { env: { PATH: process.env["PATH"] } });
  if (status !== 0) throw new Error(`${args.join(" ")}: ${String(stderr)}`);
  return performance.now() - begunMs;
}
