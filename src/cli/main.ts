#!/usr/bin/env node
import module from "node:module";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };

const needed = packageJson.engines.node.replace(">=", "");
if (process.versions.node.localeCompare(needed, "en", { numeric: true }) < 0) {
  const now = process.versions.node;
  process.stderr.write(`jwksd: needs Node ${needed} or later, this is ${now}; npm install node@24 adds one for npx\n`);
  process.exit(1);
}
// The cache is in the package, because other users could put code into a folder for temporary files.
module.enableCompileCache(join(import.meta.dirname, "../../node_modules/.cache/jwksd-compiled"));
await import("./command-line.ts");
