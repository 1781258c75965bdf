import { fileURLToPath } from "node:url";
import { type Contestant, type Result, type Server, alternate, start } from "./measure.ts";
import { type Goal, type Section, comparisonTable, cpuRatio, ratio } from "./report.ts";

/** The duration of a section's measurement and its key files. */
export interface Plan {
  readonly rounds: number;
  readonly memoryRequests: number;
  /** Private JWK Sets with 2 and with 100 keys. */
  readonly fewKeys: string;
  readonly manyKeys: string;
}

export const cli = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
export const program = (name: string): string => fileURLToPath(new URL(`servers/${name}.ts`, import.meta.url));
export const serve = (keys: string, ...flags: readonly string[]): string[] => [
  "node",
  cli,
  "serve",
  "--port",
  "0",
  "--admin",
  "off",
  "--json-logs",
  "--keys",
  keys,
  ...flags,
];

const constant = "node:http constant";
const library = "jwksd in node:http";
const service = "jwksd serve";

/** Compares GET and 304 with a constant server, oidc-provider and three frameworks. */
export async function servers({ fewKeys, rounds }: Plan): Promise<Section> {
  const byHand = await Promise.all(
    ["express", "fastify", "hono"].map(async (name) => ({ name, server: await node(name, fewKeys) })),
  );
  const named = [
    { name: library, server: await node("jwksd", fewKeys) },
    { name: service, server: await start(serve(fewKeys)) },
    { name: "oidc-provider", server: await node("oidc-provider", fewKeys) },
    ...byHand,
  ];
  const gets = [
    await contestant({ name: constant, server: await node("constant", fewKeys) }),
    ...(await Promise.all(named.map(contestant))),
  ];
  const revalidations = [
    await revalidation({ name: constant, server: await node("constant", fewKeys, "304") }, etagOf(gets)),
    ...(await Promise.all(named.map((each) => revalidation(each, etagOf(gets))))),
  ];
  const results = await alternate([...gets, ...revalidations], rounds);
  await stop(results);
  const get = results.slice(0, gets.length);
  const notModified = results.slice(gets.length);
  return {
    title: "Node: GET and 304, 2 keys",
    text: [
      "GET, status 200:",
      comparisonTable(get, first(get)),
      "GET with the current ETag in `If-None-Match`, status 304 (oidc-provider has no ETag, so it sends the whole 200 again):",
      comparisonTable(notModified, first(notModified)),
    ].join("\n\n"),
    goals: [...serverGoals("GET", get), ...serverGoals("304", notModified)],
  };
}

/** Measures GET with a document fifty times as large. */
export async function keys({ manyKeys, rounds }: Plan): Promise<Section> {
  const named = [
    { name: constant, server: await node("constant", manyKeys) },
    { name: library, server: await node("jwksd", manyKeys) },
    { name: service, server: await start(serve(manyKeys)) },
    { name: "oidc-provider", server: await node("oidc-provider", manyKeys) },
  ];
  const results = await alternate(await Promise.all(named.map(contestant)), rounds);
  await stop(results);
  return {
    title: "Node: GET, 100 keys",
    text: comparisonTable(results, first(results)),
    goals: serverGoals("GET with 100 keys", results),
  };
}

/** Compares `provider.fetch` with a constant server in another runtime. */
export async function runtime(name: "Bun" | "Deno", { fewKeys, rounds }: Plan): Promise<Section> {
  const command = name === "Bun" ? ["bun"] : ["deno", "run", "-A"];
  const run = (variant: string): Promise<Server> => start([...command, program("fetch"), fewKeys, variant]);
  const jwksd = { name: `jwksd in ${name}`, server: await run("jwksd") };
  const reader = { name: `${name} constant, reads the request`, server: await run("reader") };
  const constant = { name: `${name} constant`, server: await run("200") };
  const gets = await Promise.all([constant, reader, jwksd].map(contestant));
  const constant304 = { name: `${name} constant`, server: await run("304") };
  const revalidations = await Promise.all([constant304, reader, jwksd].map((each) => revalidation(each, etagOf(gets))));
  const results = await alternate([...gets, ...revalidations], rounds);
  await stop(results);
  const get = results.slice(0, gets.length);
  const notModified = results.slice(gets.length);
  return {
    title: `${name}: GET and 304, 2 keys`,
    text: ["GET:", comparisonTable(get, first(get)), "304:", comparisonTable(notModified, first(notModified))].join(
      "\n\n",
    ),
    goals: [
      atLeast(0.95, `GET, relative to ${name} constant`, [find(get, jwksd.name)], first(get)),
      atLeast(0.95, `304, relative to ${name} constant`, [find(notModified, jwksd.name)], first(notModified)),
    ],
  };
}

/** Returns a goal for each other server, for both ways to run jwksd in Node. */
function serverGoals(what: string, results: readonly Result[]): Goal[] {
  const ours = [find(results, library), find(results, service)];
  return results
    .filter((other) => !ours.includes(other))
    .map((other) => atLeast(other.name === "oidc-provider" ? 2 : 1, `${what}, relative to ${other.name}`, ours, other));
}

function atLeast(bound: number, name: string, ours: readonly Result[], base: Result): Goal {
  const ratios = ours.map((result) => ({ ...ratio(result, base), byCpu: cpuRatio(result, base), name: result.name }));
  return {
    name: `${name}: at least ${bound}`,
    reached: ratios.every(({ median }) => median >= bound),
    measured: ratios
      .map(({ name, median, byCpu }) => `${median.toFixed(2)} (${byCpu.toFixed(2)} by CPU) ${name}`)
      .join(", "),
  };
}

const node = (name: string, ...args: readonly string[]): Promise<Server> => start(["node", program(name), ...args]);

interface Named {
  readonly name: string;
  readonly server: Server;
}

/** Returns a contestant after a check of its response to a plain GET. */
async function contestant({ name, server }: Named): Promise<Contestant & { readonly etag: string | null }> {
  const response = await fetch(server.url);
  if (response.status !== 200 || !(await response.text()).startsWith('{"keys":[{'))
    throw new Error(`${name}: no JWK Set`);
  return { name, server, headers: {}, etag: response.headers.get("etag") };
}

async function revalidation({ name, server }: Named, etag: string): Promise<Contestant> {
  const headers = { "If-None-Match": etag };
  const { status } = await fetch(server.url, { headers });
  if (status !== (name === "oidc-provider" ? 200 : 304)) throw new Error(`${name}: ${status} to its ETag`);
  return { name, server, headers };
}

/** Returns the ETag of all contestants in a section. They serve the same keys, so it must be equal. */
function etagOf(gets: readonly { readonly name: string; readonly etag: string | null }[]): string {
  const etags = new Set(gets.map(({ etag }) => etag).filter((etag) => etag !== null));
  const [etag, ...others] = etags;
  if (etag === undefined || others.length > 0) throw new Error(`ETags differ: ${[...etags].join(" ")}`);
  return etag;
}

async function stop(results: readonly Result[]): Promise<void> {
  await Promise.all([...new Set(results.map(({ server }) => server))].map((server) => server.stop()));
}

function first(results: readonly Result[]): Result {
  return results[0] as Result;
}

function find(results: readonly Result[], name: string): Result {
  return results.find((result) => result.name === name) as Result;
}
