import { fileURLToPath } from "node:url";
import { type Plan, cli, program } from "./comparisons.ts";
import { type Server, alternate, median, start } from "./measure.ts";
import { type Section, table } from "./report.ts";

/** Folder of a checkout of another commit, such as the one before a change. */
const base = process.env["BENCH_BASE"];
const least = 1.02;

/**
 * Measures the CPU time of counting and scraping per GET: compares a service that is scraped every second with one that is not and, if
 * `BENCH_BASE` names the folder of another checkout, its library with this one.
 */
export async function metrics({ fewKeys, rounds }: Plan): Promise<Section> {
  const admin = (port: number): string[] => ["--admin", `127.0.0.1:${port}`, "--keys", fewKeys];
  const serve = (port: number) => start(["node", cli, "serve", "--port", "0", "--json-logs", ...admin(port)]);
  const library = (file: string) => start(["node", file, fewKeys]);
  const pairs: (readonly [before: string, after: string, Server, Server])[] = [
    ["jwksd serve", "jwksd serve, scraped every second", await serve(19_911), await serve(19_912)],
  ];
  if (base !== undefined) {
    const here = program("jwksd");
    const there = here.replace(fileURLToPath(new URL("../", import.meta.url)), `${base}/`);
    pairs.push(["the library before", "the library", await library(there), await library(here)]);
  }
  const scraping = setInterval(() => {
    fetch("http://127.0.0.1:19912/metrics")
      .then((response) => response.text())
      .catch(() => {});
  }, 1_000);
  const rows: string[][] = [];
  const ratios: number[] = [];
  for (const [before, after, one, other] of pairs) {
    const named = [
      { name: before, server: one, headers: {} },
      { name: after, server: other, headers: {} },
    ];
    const [was = 0, is = 0] = (await alternate(named, rounds * 2)).map(({ loads }) =>
      median(loads.map(({ serverMicroseconds }) => serverMicroseconds)),
    );
    rows.push([before, was.toFixed(2), ""], [after, is.toFixed(2), (is / was).toFixed(3)]);
    ratios.push(is / was);
  }
  clearInterval(scraping);
  await Promise.all(pairs.flatMap(([, , ...servers]) => servers.map(({ stop }) => stop())));
  return {
    title: "Metrics",
    text: ["Median CPU time per GET:", table(["", "CPU µs/request", "ratio"], rows)].join("\n\n"),
    goals: [
      {
        name: "metrics cost at most 2% of a GET",
        reached: ratios.every((ratio) => ratio <= least),
        measured: ratios.map((ratio) => ratio.toFixed(3)).join(", "),
      },
    ],
  };
}
