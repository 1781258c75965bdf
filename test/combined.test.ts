// `npm test` runs the tests of these rooms in one process: they need none of their own, and a start takes longer than most of them.
import { glob } from "node:fs/promises";
import { join } from "node:path";

const files = await Array.fromAsync(
  glob(`@(${process.env["JWKSD_COMBINED"]})/**/*.test.ts`, { cwd: import.meta.dirname }),
);
for (const file of files.toSorted()) await import(join(import.meta.dirname, file));
