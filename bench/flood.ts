import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { type FloodResult, contestants } from "./flood-run.ts";
import { type Section, table } from "./report.ts";

// Times of the rotation after the five-minute mark. In a single run, a key set that waits for a fixed time would be lucky or unlucky.
const phasesSeconds = [2, 9, 16, 23];

/** Simulates ten minutes with 50 unknown kids per second and a rotation in the middle. */
export async function flood(): Promise<Section> {
  const results: FloodResult[] = [];
  for (const name of Object.keys(contestants)) {
    const runs = await Promise.all(phasesSeconds.map((phase) => run(name, phase)));
    const sum = (member: "fetches" | "valid" | "refused") => runs.reduce((total, each) => total + each[member], 0);
    results.push({ name, fetches: sum("fetches"), valid: sum("valid"), refused: sum("refused") });
  }
  const rows = results.map(({ name, fetches, refused, valid }) => [
    name,
    (fetches / (10 * phasesSeconds.length)).toFixed(1),
    `${refused} of ${valid}`,
  ]);
  const ours = results.find(({ name }) => name === "jwksd");
  // A key set that fetches for every unknown kid refuses no valid token but forwards the flood to the provider.
  const bounded = results.filter(({ name, fetches }) => name !== "jwksd" && fetches <= 60 * 10 * phasesSeconds.length);
  const fewest = Math.min(...bounded.map(({ refused }) => refused));
  return {
    title: "A flood of unknown kids",
    text: [
      "For ten minutes, each key set receives 50 tokens with unknown kids and one valid token per second. Halfway through, the provider rotates its keys, so the next valid token has a kid that no cache has. In four runs, the rotation happens 2, 9, 16 and 23 seconds after the five-minute mark. The packages are the real ones, and each runs in its own process on a simulated clock. Requests are counted as they leave the process.",
      table(["key set", "fetches per minute", "valid tokens rejected in the 2 minutes after the rotation"], rows),
    ].join("\n\n"),
    goals: [
      {
        name: "flood: fewest valid tokens rejected among those that fetch at most once per second",
        reached: (ours?.refused ?? Infinity) <= fewest,
        measured: `${ours?.refused}, the next best ${fewest}`,
      },
    ],
  };
}

async function run(name: string, phaseSeconds: number): Promise<FloodResult> {
  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL("flood-run.ts", import.meta.url)), name, String(phaseSeconds)],
    {
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => (output += chunk));
  const [code] = (await once(child, "close")) as [number];
  if (code !== 0) throw new Error(`${name} ended with ${code}`);
  return JSON.parse(output) as FloodResult;
}
