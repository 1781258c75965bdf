import { writeFileSync } from "node:fs";
import type { Row } from "../../src/doctor/verifiers/outcome-row.ts";
import { clients } from "./clients.ts";
import { installedVersion, libraries, startDebian } from "./debian.ts";
import { refusesGood, startServers, tryAll } from "./matrix.ts";

// `node test/doctor/table.ts` runs every verifier against every finding, and writes src/doctor/verifiers/test-outcomes.ts.

const file = new URL("../../src/doctor/verifiers/test-outcomes.ts", import.meta.url);

const missing = libraries.filter((library) => installedVersion(library.package) === undefined);
if (missing.length > 0) throw new Error(`not installed: ${missing.map((library) => library.package).join(", ")}`);
const servers = await startServers();
const debian = startDebian(libraries, servers.certificate, servers.folder);
const all = [...clients, ...debian.clients];
try {
  for (const client of all) {
    const refused = await refusesGood(client, servers.origins);
    if (refused !== undefined) throw new Error(`${client.name} refuses ${refused} of a good provider`);
  }
  writeFileSync(file, source(await tryAll(all, servers.origins)));
} finally {
  await debian.stop();
  await servers.stop();
}

function source(rows: readonly Row[]): string {
  const versions = Object.fromEntries(all.map(({ name, version }) => [name, version]));
  return `import type { Row } from "./outcome-row.ts";

// Written by \`node test/doctor/table.ts\`, which runs the verifiers. A test runs them again and compares.

/** Date of the run. */
export const date = ${JSON.stringify(new Date().toISOString().slice(0, 10))};

/** Verifiers that were run, with their versions. Each is a column of the table. */
export const versions: Readonly<Record<string, string>> = ${JSON.stringify(versions)};

/** Forms of findings, and the outcome of each verifier. */
export const rows: readonly Row[] = ${JSON.stringify(rows)};
`;
}
