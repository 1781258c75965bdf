import { readFile } from "node:fs/promises";
import { ConfigError } from "../../base/errors.ts";
import { object } from "../../base/options.ts";

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
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw bad(`is not JSON${placeOf(error as SyntaxError)}`);
  }
  if (!object.holds(value)) throw bad("is not a JSON object");
  return value as Record<string, unknown>;
}

/**
 * The position of a mistake in JSON, where the message of V8 ends with one. Other messages quote the text, which may hold secrets, so nothing
 * is taken from them.
 */
function placeOf({ message }: SyntaxError): string {
  const [, line, column] = / \(line (\d+) column (\d+)\)$/.exec(message) ?? [];
  if (line !== undefined) return `: look at line ${line}, column ${column}`;
  return message === "Unexpected end of JSON input" ? ": it ends too early" : "";
}
