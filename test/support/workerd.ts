import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { binary, bundledText } from "./bundle.ts";

/** A Worker of one module. */
export interface Worker {
  readonly script: string;
  readonly bindings: readonly Binding[];
  /** A class of Durable Objects, which are kept on the disk. */
  readonly objects?: string;
  /** Default: a late one. */
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
/** D1 as Cloudflare binds it, with a service in the place of its database. */
export const d1Binding = (name: string, service: string): Binding =>
  `(name = "${name}", wrapped = (moduleName = "cloudflare-internal:d1-api", innerBindings = [ (name = "fetcher", service = "${service}") ]))`;

/** Stands for the database of D1: one SQLite database, in an object. */
export const d1Worker = async (path: string): Promise<Worker> => ({
  script: await bundledText(path),
  bindings: [objectBinding("DATABASE", "Database")],
  objects: "Database",
});

/**
 * Writes what workerd needs into a folder, and gives the command that starts it.
 *
 * @param sockets the port of each service that is reached from outside
 */
export async function workerdCommand(
  folder: string,
  workers: Readonly<Record<string, Worker>>,
  sockets: Readonly<Record<string, number>>,
): Promise<[string, ...string[]]> {
  const disk = join(folder, "disk");
  await mkdir(disk);
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
