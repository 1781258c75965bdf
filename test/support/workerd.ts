import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { binary, bundledText } from "./bundle.ts";

/** A Worker with one module. */
export interface Worker {
  readonly script: string;
  readonly bindings: readonly Binding[];
  /** Class of Durable Objects, which are stored on disk. */
  readonly objects?: string;
  /** Compatibility date. Default: a recent one. */
  readonly date?: string;
}

type Binding = `(name = ${string})`;

const quoted = (text: string): string => JSON.stringify(text);

export const textBinding = (name: string, text: string): Binding => `(name = "${name}", text = ${quoted(text)})`;
export const jsonBinding = (name: string, value: unknown): Binding =>
  `(name = "${name}", json = ${quoted(JSON.stringify(value))})`;
export const kvBinding = (name: string, service: string): Binding => `(name = "${name}", kvNamespace = "${service}")`;
export const objectBinding = (name: string, objects: string): Binding =>
  `(name = "${name}", durableObjectNamespace = "${objects}")`;
/** Returns a D1 binding as in Cloudflare, with a service instead of the database. */
export const d1Binding = (name: string, service: string): Binding =>
  `(name = "${name}", wrapped = (moduleName = "cloudflare-internal:d1-api", innerBindings = [ (name = "fetcher", service = "${service}") ]))`;

/** Returns the Worker that replaces the D1 database: one SQLite database, in an object. */
export const d1Worker = async (path: string): Promise<Worker> => ({
  script: await bundledText(path),
  bindings: [objectBinding("DATABASE", "Database")],
  objects: "Database",
});

/**
 * Writes workerd's files into a folder and returns the command that starts it.
 *
 * @param sockets port of each service that is reachable from the outside
 */
export async function workerdCommand(
  folder: string,
  workers: Readonly<Record<string, Worker>>,
  sockets: Readonly<Record<string, number>>,
): Promise<[string, ...string[]]> {
  const disk = join(folder, "disk");
  await mkdir(disk, { recursive: true });
  const services = Object.keys(workers).map((name) => `(name = "${name}", worker = .${name})`);
  const listening = Object.entries(sockets).map(
    ([service, port]) => `(name = "${service}", address = "127.0.0.1:${port}", http = (), service = "${service}")`,
  );
  for (const [name, { script }] of Object.entries(workers)) await writeFile(join(folder, `${name}.js`), script);
  const constants = Object.entries(workers).map(([name, { bindings, objects, date = "2026-10-01" }]) => {
    const kept = `durableObjectNamespaces = [ (className = "${objects}", uniqueKey = "${name}", enableSql = true) ],
  durableObjectStorage = (localDisk = "disk"),`;
    return `const ${name} :Workerd.Worker = (
  modules = [ (name = "${name}", esModule = embed "${name}.js") ],
  bindings = [ ${bindings.join(", ")} ],
  ${objects === undefined ? "" : kept}
  compatibilityDate = "${date}",
);`;
  });
  const config = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    ${services.join(", ")}, (name = "internet", network = (allow = ["local"])),
    (name = "disk", disk = (path = "${disk}", writable = true)),
  ],
  sockets = [ ${listening.join(", ")} ],
);
${constants.join("\n")}
`;
  await writeFile(join(folder, "config.capnp"), config);
  return [binary("workerd"), "serve", "--control-fd=1", join(folder, "config.capnp")];
}
