import { readFile } from "node:fs/promises";
import { ConfigError } from "../../base/errors.ts";
import { object } from "../../base/options.ts";

/**
 * Reads a file that contains one JSON object. Error messages never quote the file, because it may be the wrong file and
 * contain a secret.
 *
 * @param what name of the file, such as "the configuration file"
 * @throws ConfigError `ERR_CONFIG_FORMAT`
 */
export async function readJsonObject(path: string, what: string): Promise<Record<string, unknown>> {
  const invalid = (problem: string, cause?: unknown) =>
    new ConfigError("ERR_CONFIG_FORMAT", `${what} ${path} ${problem}`, { cause });
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    throw invalid(`cannot be read (${error.code})`, error);
  });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw invalid(`is not JSON${positionOf(error as SyntaxError)}`);
  }
  if (!object.holds(value)) throw invalid("is not a JSON object");
  return value as Record<string, unknown>;
}

/**
 * Returns the position of a JSON syntax error, if V8's message ends with one. Ignores other messages, because they
 * quote the text, which may contain secrets.
 */
function positionOf({ message }: SyntaxError): string {
  const [, line, column] = / \(line (\d+) column (\d+)\)$/.exec(message) ?? [];
  if (line !== undefined) return `; check line ${line}, column ${column}`;
  return message === "Unexpected end of JSON input" ? "; it is incomplete" : "";
}
