import { globSync } from "node:fs";
import { join, resolve } from "node:path";

const folder = resolve(import.meta.dirname, "..");
const processes = 8;

/**
 * `npm test` runs the tests of some rooms in a few processes: they need none of their own, and a start takes longer than most of them.
 *
 * @param process - from 0
 */
export async function runCombined(process: number): Promise<void> {
  const files = globSync(`@(${globalThis.process.env["COMBINED_TESTS"]})/**/*.test.ts`, { cwd: folder }).toSorted();
  for (const [index, file] of files.entries()) if (index % processes === process) await import(join(folder, file));
}

/** The tests of one room in a process of their own: they change its environment. */
export async function runRoom(room: string): Promise<void> {
  for (const file of globSync("*.test.ts", { cwd: join(folder, room) }).toSorted())
    await import(join(folder, room, file));
}
