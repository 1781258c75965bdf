import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Plan } from "./comparisons.ts";
import { median } from "./measure.ts";
import { type Section, table } from "./report.ts";

/** Measures the duration of commands, from the start of the process to its end. */
export async function starts({ fewKeys, rounds }: Plan): Promise<Section> {
  const main = fileURLToPath(new URL("../dist/cli/main.js", import.meta.url));
  if (!existsSync(main)) throw new Error(`${main} is missing; build it with: npm run build`);
  const data = mkdtempSync(join(tmpdir(), "jwksd-bench-start-"));
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
  try {
    milliseconds([main, "keys", "import", fewKeys, ...issuer]);
    const rows = commands.map((command) => ({
      name: command.filter((word) => word !== data).join(" "),
      ms: median(Array.from({ length: rounds * 2 }, () => milliseconds([main, ...command]))),
    }));
    const [slowest] = rows.toSorted((a, b) => b.ms - a.ms);
    const { name = "", ms = Number.NaN } = slowest ?? {};
    return {
      title: "Commands, from start to exit",
      text: table(
        ["jwksd …", "ms"],
        rows.map(({ name, ms }) => [name, ms.toFixed(0)]),
      ),
      goals: [
        { name: "every command: under 150 ms", reached: ms < 150, measured: `${ms.toFixed(0)} ms, jwksd ${name}` },
      ],
    };
  } finally {
    rmSync(data, { recursive: true });
  }
}

function milliseconds(args: readonly string[]): number {
  const begunMs = performance.now();
  const { status, stderr } = spawnSync(process.execPath, args, { env: { PATH: process.env["PATH"] } });
  if (status !== 0) throw new Error(`${args.join(" ")}: ${String(stderr)}`);
  return performance.now() - begunMs;
}
