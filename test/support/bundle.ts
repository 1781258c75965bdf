import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const modules = new URL("../../node_modules/", import.meta.url);

/** A program of the npm dependencies. */
export const binary = (name: string): string => fileURLToPath(new URL(`.bin/${name}`, modules));

/** Makes one file of a script and all that it imports, for runtimes that find no packages. */
export async function bundle(script: string, file: string, ...args: readonly string[]): Promise<void> {
  await promisify(execFile)(binary("bun"), ["build", script, "--outfile", file, ...args]);
}

const texts = new Map<string, Promise<string>>();

/** The text of such a file, made once for all tests of a process. */
export function bundledText(script: string, ...args: readonly string[]): Promise<string> {
  const name = [script, ...args].join(" ");
  const made =
    texts.get(name) ?? promisify(execFile)(binary("bun"), ["build", script, ...args]).then(({ stdout }) => stdout);
  texts.set(name, made);
  return made;
}
