// Writes a list of the archive's parts next to it: the packages from which the bundle contains a file, pkcs11js and Node. One file is CycloneDX,
// based on npm's list; another one has their licenses.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../package.json" with { type: "json" };

/** The members of npm's list that are used. */
interface Bom {
  readonly metadata: { component: object; lifecycles: object };
  components: { readonly "bom-ref": string; properties: { readonly name: string }[] }[];
  dependencies: { readonly ref: string; dependsOn: readonly string[] }[];
}

const folder = "dist/archive";
const [, , archive = ""] = process.argv;
/** Packages in the bundle, as reported by the bundler. */
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
        .update(readFileSync(join(folder, `${archive}.tar.gz`)))
        .digest("hex"),
    },
  ],
};
bom.components = bom.components.filter((component) => parts.has(component["bom-ref"]));
// npm lists them as development tools, but the archive contains them.
for (const component of bom.components)
  component.properties = component.properties.filter(({ name }) => name !== "cdx:npm:package:development");
bom.dependencies = bom.dependencies
  .filter(({ ref }) => isPart(ref))
  .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter(isPart) }));
writeFileSync(join(folder, `${archive}.cdx.json`), `${JSON.stringify(bom, null, 2)}\n`);

const licenses = [...parts].flatMap(([name, folder]) =>
  readdirSync(folder)
    .filter((file) => /^(?:licen[cs]e|notice|copying)/i.test(file))
    .map((file) => `== ${name}, ${file}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`),
);
writeFileSync(join(folder, `${archive}.licenses.txt`), licenses.join("\n"));
