import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { part } from "../support/parts.ts";

const folder = fileURLToPath(new URL("../../ops", import.meta.url));

/** Runs promtool in the `ops` folder. Rejects with its output if it finds an error. */
export const promtool = (...args: readonly string[]): Promise<{ stdout: string; stderr: string }> =>
  promisify(execFile)(part("promtool"), args, {
    cwd: folder,
    // On one core and with less garbage collection, it needs two thirds of the CPU time and 50 MB more.
    env: { ...process.env, GOGC: "400", GOMAXPROCS: "1" },
  });
