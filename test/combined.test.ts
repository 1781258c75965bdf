// `npm test` runs the tests of these rooms in one process: they need none of their own, and a start takes longer than most of them.
import { globSync } from "node:fs";
import { join } from "node:path";

const files = globSync(`@(${process.env["COMBINED_TESTS"]})/**/*.test.ts`, { cwd: import.meta.dirname });
for (const file of files.toSorted()) await import(join(import.meta.dirname, file));
