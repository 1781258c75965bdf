import { readFile } from "node:fs/promises";
import { ConfigError } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import { object } from "../../base/options.ts";
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
    // Both counted from 1, as in editors.
    const lines = text.slice(0, faultOf(text)).split("\n");
    throw bad(`is not JSON: look at line ${lines.length}, column ${(lines.at(-1)?.length ?? 0) + 1}`);
  }
  if (!object.holds(value)) throw bad("is not a JSON object");
  return value as Record<string, unknown>;
}
