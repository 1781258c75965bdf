import { type Plan, serve } from "./comparisons.ts";
import { type Contestant, alternate, start } from "./measure.ts";
import { type Section, comparisonTable, ratio } from "./report.ts";

/**
 * `jwksd serve` with one worker on one core against two workers on two. There is no third core for the load generator, so it
 * shares the cores of its server, one thread on each: then both sides double.
 */
export async function workers({ fewKeys, rounds }: Plan): Promise<Section> {
  const contestants = await Promise.all([onCores("0", 1, fewKeys), onCores("0,1", 2, fewKeys)]);
  const [one, two] = await alternate(contestants, rounds);
  await Promise.all(contestants.map(({ server }) => server.stop()));
  if (one === undefined || two === undefined) throw new Error("nothing was measured");
  const { median, min, max } = ratio(two, one);
  return {
    title: "Workers",
    text: [
      "One worker on one core against two on two; the load generator runs on the same cores, with one thread on each:",
      comparisonTable([one, two], one),
    ].join("\n\n"),
    goals: [
      {
        name: "2 workers to 1: at least 1.8",
        reached: median >= 1.8,
        measured: `${median.toFixed(2)} (${min.toFixed(2)} to ${max.toFixed(2)})`,
      },
    ],
  };
}

async function onCores(cores: string, count: number, keys: string): Promise<Contestant> {
  return {
    name: count === 1 ? "1 worker" : `${count} workers`,
    server: await start(serve(keys, "--workers", String(count)), cores),
    headers: {},
    // Many connections: the kernel spreads them over the workers by hash, and few would be spread unevenly.
    generator: { cores, threads: count, connections: 64 * count },
  };
}
