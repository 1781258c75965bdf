import { execFile } from "node:child_process";
import { createHmac, randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { type ConfigError, invalidOption } from "../../base/errors.ts";
import { type Rule, object, text, texts } from "../../base/options.ts";
import { TokenFailure } from "./failure.ts";
import type { TokenDescription } from "./messages.ts";

/** Where the user PIN of a token comes from. jwksd reads it at each start of the child process, and does not keep it. */
export type PinSource =
  /** A file that holds the PIN alone. */
  | { readonly file: string }
  /** The name of an environment variable. */
  | { readonly environment: string }
  /** A program that prints the PIN, and its arguments. It runs without a shell. */
  | { readonly command: readonly [program: string, ...args: string[]] };

const commandTimeoutMs = 30_000;
// Tokens take at most 255 characters.
const maxPinLength = 1024;

/**
 * Reads the PIN, without one line end after it.
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

export const pinRule: Rule<object> = {
  must: "{ file }, { environment } or { command: [program, ...arguments] }",
  types: ["object"],
  holds: (source): source is object => {
    const [[kind, where] = [], another] = object.holds(source) ? Object.entries(source) : [];
    if (another !== undefined) return false;
    if (kind === "command") return texts.holds(where) && where.length > 0;
    return (kind === "file" || kind === "environment") && text.holds(where);
  },
};

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
      // Not the error itself, which holds the output of the command.
      if (error === null) resolve(output);
      else reject(bad(`the command ${JSON.stringify(program)} failed (${error.code ?? error.signal ?? "killed"})`));
    });
  });
}

/** A source for a message, without the arguments of a command. */
export function describePin(source: PinSource): string {
  if ("file" in source) return `file ${source.file}`;
  return "environment" in source
    ? `environment variable ${source.environment}`
    : `the output of the command ${JSON.stringify(source.command[0])}`;
}

const bad = (rule: string): ConfigError => invalidOption(`pin: ${rule}`);

// The fate of each PIN in this process, by its keyed hash.
const known = new Map<string, "right" | "refused">();
const processKey = randomBytes(32);

/** The tries of the PIN of one token. */
export interface PinTries {
  /** Why no more PINs are tried. */
  readonly refusal: TokenFailure | undefined;
  /** To be called before the module is started. */
  begin(): void;
  /** The PIN, for one try. Rejects with {@link TokenFailure} if it was refused before, or as {@link readPin} does. */
  next(token: TokenDescription): Promise<string | undefined>;
  worked(): void;
  /** After a login without a result, the PIN counts as refused, unless it has worked before. */
  failed(failure: TokenFailure): void;
}

/**
 * Counts the tries, because tokens lock after a few wrong ones. No connection tries a refused PIN again. A PIN that once worked does not count
 * as refused when a login fails for an unknown reason.
 */
export function createPinTries(source: PinSource | undefined, modulePath: string): PinTries {
  /** Hash of the last PIN that was tried. */
  let last = "";
  let refusal: TokenFailure | undefined;
  return {
    get refusal() {
      return known.get(last) === "right" ? undefined : refusal;
    },

    begin() {
      [last, refusal] = ["", undefined];
    },

    async next(token) {
      if (source === undefined) return undefined;
      const pin = await readPin(source);
      last = createHmac("sha256", processKey)
        .update(JSON.stringify([modulePath, token, pin]))
        .digest("hex");
      if (known.get(last) !== "refused") return pin;
      throw new TokenFailure("pin", "this PIN was refused before, or may have been", true);
    },

    worked() {
      if (last !== "") known.set(last, "right");
    },

    failed(failure) {
      const isDoubted = failure.reason === "login" && known.get(last) !== "right";
      if (failure.reason !== "pin" && !isDoubted) return;
      refusal = failure;
      if (last !== "") known.set(last, "refused");
    },
  };
}
