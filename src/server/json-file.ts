import { readFile } from "node:fs/promises";
import { ConfigError } from "../errors.ts";
import { jsonOf } from "../json.ts";
import { object } from "../options.ts";
import { faultOf } from "./json-fault.ts";

/**
 * Reads a file with one JSON object. No message quotes the file, because it may be the wrong one, with a secret.
 *
 * @param what the file is, such as "the configuration file"
 * @throws ConfigError `ERR_CONFIG_FORMAT`
 */
export async function readJsonObject(path: string, what: string): Promise<Record<string, unknown>> {
  const bad = (rule: string, cause?: unknown) =>
    new ConfigError("ERR_CONFIG_FORMAT", `${what} ${path} ${rule}`, { cause });
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    throw bad(`cannot be read (${error.code})`, error);
  });
  const value = jsonOf(text);
  if (value === undefined) {
    const { line, column } = placeIn(text, faultOf(text) ?? 0);
    throw bad(`is not JSON: look at line ${line}, column ${column}`);
  }
  if (!object.holds(value)) throw bad("is not a JSON object");
  return value as Record<string, unknown>;
}

/** Line and column, counted from 1, as in editors. */
function placeIn(text: string, index: number): { readonly line: number; readonly column: number } {
  const lines = text.slice(0, index).split("\n");
  return { line: lines.length, column: (lines.at(-1)?.length ?? 0) + 1 };
}
