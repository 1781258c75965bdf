// Writes what the archive is made of beside it: the packages from which the bundler has taken a file, pkcs11js and Node. As CycloneDX, after the
// list of npm, and as the texts of their licenses.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../package.json" with { type: "json" };

/** The parts of the list of npm that are used. */
interface Bom {
  readonly metadata: { component: object; lifecycles: object };
  components: { readonly "bom-ref": string; properties: { readonly name: string }[] }[];
  dependencies: { readonly ref: string; dependsOn: readonly string[] }[];
}

const folder = "dist/archive";
const [, , archive = ""] = process.argv;
/** Of the bundler. */
const metafile = join(folder, "bundle.json");
const json = (path: string): unknown => JSON.parse(readFileSync(path, "utf8"));

const { inputs } = json(metafile) as { readonly inputs: object };
rmSync(metafile);
const folders = new Set(["node_modules/node", "node_modules/pkcs11js"]);
for (const path of Object.keys(inputs)) {
  const [, found] = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path) ?? [];
  if (found !== undefined) folders.add(found);
}
const parts = new Map(
  [...folders].sort().map((folder) => {
    const { name, version } = json(join(folder, "package.json")) as { name: string; version: string };
    return [`${name}@${version}`, folder];
  }),
);

const own = `${packageJson.name}@${packageJson.version}`;
const isPart = (ref: string): boolean => parts.has(ref) || ref === own;
const args = ["sbom", "--package-lock-only", "--sbom-format=cyclonedx", "--loglevel=error"];
const bom = JSON.parse(execFileSync("npm", args, { encoding: "utf8", maxBuffer: 2 ** 26 })) as Bom;
bom.metadata.lifecycles = [{ phase: "build" }];
bom.metadata.component = {
  ...bom.metadata.component,
  name: packageJson.name,
  type: "application",
  hashes: [
    {
      alg: "SHA-256",
      content: createHash("sha256")
        .update(readFileSync(join(folder, archive)))
        .digest("hex"),
    },
  ],
};
bom.components = bom.components.filter((component) => parts.has(component["bom-ref"]));
// For npm they are tools of a developer, but here they are inside.
for (const component of bom.components)
  component.properties = component.properties.filter(({ name }) => name !== "cdx:npm:package:development");
bom.dependencies = bom.dependencies
  .filter(({ ref }) => isPart(ref))
  .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter(isPart) }));
writeFileSync(join(folder, "jwksd.cdx.json"), `${JSON.stringify(bom, null, 2)}\n`);

const licenses = [...parts].flatMap(([name, folder]) =>
  readdirSync(folder)
    .filter((file) => /^(?:licen[cs]e|notice|copying)/i.test(file))
    .map((file) => `== ${name}, ${file}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`),
);
writeFileSync(join(folder, "licenses.txt"), licenses.join("\n"));
