#!/usr/bin/env node
import module from "node:module";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };

const required = packageJson.engines.node.replace(">=", "");
if (process.versions.node.localeCompare(required, "en", { numeric: true }) < 0) {
  const current = process.versions.node;
  process.stderr.write(
    `jwksd: Node ${required} or later is required, but this is Node ${current}; to use npx, first run: npm install node@24\n`,
  );
  process.exit(1);
}
// The cache is inside the package, because other users could put code into a cache in a temporary folder.
module.enableCompileCache(join(import.meta.dirname, "../../node_modules/.cache/jwksd-compiled"));
await import("./start-cli.ts");
