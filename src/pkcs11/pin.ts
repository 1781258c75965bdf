import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { ConfigError } from "../errors.ts";

/** Where the user PIN of a token comes from. It is read each time that the module's process is started, and not kept. */
export type PinSource =
  | { readonly file: string }
  /** Name of an environment variable. */
  | { readonly environment: string }
  /** A program and its arguments, without a shell; it prints the PIN. */
  | { readonly command: readonly [program: string, ...args: string[]] };

const commandTimeoutMs = 30_000;
// No token takes more than 255 characters, the greatest value of ulMaxPinLen in use.
const maxPinLength = 1024;

/**
 * Reads the PIN; one line end after it is not part of it.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export async function readPin(source: PinSource): Promise<string> {
  const pin = (await readSource(source)).replace(/\r?\n$/, "");
  const problem = problemOf(pin);
  if (problem === undefined) return pin;
  throw bad(`${describePin(source)} ${problem}; it must hold the PIN alone, in one line`);
}

function problemOf(pin: string): string | undefined {
  if (pin === "") return "is empty";
  if (pin.includes("\n")) return "has more than one line";
  return pin.length > maxPinLength ? `has more than ${maxPinLength} characters` : undefined;
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
export function checkPinSource(source: unknown): void {
  const entries = typeof source === "object" && source !== null ? Object.entries(source) : [];
  const [entry] = entries;
  const isValid =
    entry !== undefined &&
    entries.length === 1 &&
    (entry[0] === "command"
      ? Array.isArray(entry[1]) && entry[1].length > 0 && entry[1].every(isText)
      : ["file", "environment"].includes(entry[0]) && isText(entry[1]));
  // Whatever it is instead, it may be the PIN.
  if (!isValid) throw bad("it is one of { file }, { environment } and { command: [program, ...arguments] }");
}

const isText = (value: unknown): boolean => typeof value === "string" && value !== "";

async function readSource(source: PinSource): Promise<string> {
  if ("environment" in source) {
    const value = process.env[source.environment];
    if (value === undefined) throw bad(`${describePin(source)} is not set`);
    return value;
  }
  if ("command" in source) return outputOf(source.command);
  try {
    return await readFile(source.file, "utf8");
  } catch (error) {
    throw bad(`${describePin(source)} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}

function outputOf([program, ...args]: readonly [string, ...string[]]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(program, args, { encoding: "utf8", timeout: commandTimeoutMs, maxBuffer: 65_536 }, (error, output) => {
      // The error holds what the command has printed.
      if (error === null) resolve(output);
      else reject(bad(`the command ${JSON.stringify(program)} failed (${error.code ?? error.signal ?? "killed"})`));
    });
  });
}

/** A source for a message: where the PIN is, without the arguments of a command. */
export function describePin(source: PinSource): string {
  if ("file" in source) return `file ${source.file}`;
  return "environment" in source
    ? `environment variable ${source.environment}`
    : `the output of the command ${JSON.stringify(source.command[0])}`;
}

const bad = (rule: string): ConfigError => new ConfigError("ERR_OPTION_INVALID", `pin: ${rule}`);
