import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** Returns the path of a program from the npm dependencies. */
export const binary = (name: string): string =>
  fileURLToPath(new URL(`../../node_modules/.bin/${name}`, import.meta.url));

const texts = new Map<string, Promise<string>>();

/** Bundles a script with its imports, for runtimes that cannot resolve packages. It is bundled once per process. */
export function bundledText(script: string, ...args: readonly string[]): Promise<string> {
  const name = [script, ...args].join(" ");
  const made =
    texts.get(name) ?? promisify(execFile)(binary("bun"), ["build", script, ...args]).then(({ stdout }) => stdout);
  texts.set(name, made);
  return made;
}
