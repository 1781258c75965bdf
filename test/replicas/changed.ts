import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { fileURLToPath } from "node:url";
import type { JwksdError, StoreError } from "../../src/base/errors.ts";
import type { memoryStore } from "../../src/rotation/store/memory.ts";
import type { createServiceManager } from "../support/managed.ts";

/*
 * Managers in this process with one changed rule: each change has its own module graph, whose source is edited while it is loaded.
 */

/** The exports of one module graph that a driver needs. */
export interface Code {
  readonly createKeyManager: typeof createServiceManager;
  readonly memoryStore: typeof memoryStore;
  readonly StoreError: typeof StoreError;
  readonly JwksdError: typeof JwksdError;
}

/** A replacement in a source file. */
export type Edit = readonly [file: string, from: string, to: string];

const src = new URL("../../src/", import.meta.url).href;
const changes = new Map<string, readonly Edit[]>();
const applied = new Set<Edit>();
const nameOf = (url: string): string | null => new URL(url).searchParams.get("changed");

registerHooks({
  resolve(specifier, context, next) {
    const resolved = next(specifier, context);
    if (context.parentURL === undefined || !resolved.url.startsWith(src)) return resolved;
    const name = context.parentURL.startsWith(src) ? nameOf(context.parentURL) : null;
    if (name === null || nameOf(resolved.url) !== null) return resolved;
    return { ...resolved, url: `${resolved.url}?changed=${name}` };
  },
  load(url, context, next) {
    const name = url.startsWith(src) ? nameOf(url) : null;
    if (name === null) return next(url, context);
    const file = url.slice(src.length).split("?")[0] as string;
    let source = readFileSync(fileURLToPath(src + file), "utf8");
    for (const edit of changes.get(name) ?? []) {
      const [editedFile, from, to] = edit;
      if (editedFile !== file) continue;
      applied.add(edit);
      assert.equal(source.split(from).length, 2, `${name}: ${file} has exactly once: ${from}`);
      source = source.replace(from, () => to);
    }
    return { format: "module-typescript", source, shortCircuit: true };
  },
});

/** Loads a module from the graph with the edits of this name. */
export async function load<T>(name: string, file: string): Promise<T> {
  return (await import(`${src}${file}?changed=${name}`)) as T;
}

/** Loads the code with these edits. @param others additional files to load, which contain some of the edits */
export async function codeWith(
  name: string,
  edits: readonly Edit[] = [],
  others: readonly string[] = [],
): Promise<Code> {
  changes.set(name, edits);
  for (const file of others) await load(name, file);
  const manager = await load<Pick<Code, "createKeyManager">>(name, "rotation/manager/manager.ts");
  const store = await load<Pick<Code, "memoryStore">>(name, "rotation/store/memory.ts");
  const errors = await load<Pick<Code, "StoreError" | "JwksdError">>(name, "base/errors.ts");
  for (const edit of edits) assert.ok(applied.has(edit), `${name}: ${edit[0]} was not loaded`);
  return { ...manager, ...store, ...errors };
}
