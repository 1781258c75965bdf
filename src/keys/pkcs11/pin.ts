import { execFile } from "node:child_process";
import { createHmac, randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { type ConfigError, invalidOption } from "../../base/errors.ts";
import { type Rule, object, nonEmptyString, strings } from "../../base/options.ts";
import { TokenFailure } from "./failure.ts";
import type { TokenDescription } from "./messages.ts";

/** The source of a token's user PIN. jwksd reads the PIN each time it starts the child process and does not keep it. */
export type PinSource =
  /** A file that contains only the PIN. */
  | { readonly file: string }
  /** Name of the environment variable that contains the PIN. */
  | { readonly environment: string }
  /** A program and its arguments. The program prints the PIN and is run without a shell. */
  | { readonly command: readonly [program: string, ...args: string[]] };

const commandTimeoutMs = 30_000;
// Tokens accept at most 255 characters.
const maxPinLength = 1024;

/**
 * Reads the PIN and removes a trailing line break.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export async function readPin(source: PinSource): Promise<string> {
  const pin = (await readSource(source)).replace(/\r?\n$/, "");
  const problem = problemOf(pin);
  if (problem === undefined) return pin;
  throw invalidPin(`${describePin(source)} ${problem}; it must contain only the PIN, on one line`);
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
    if (kind === "command") return strings.holds(where) && where.length > 0;
    return (kind === "file" || kind === "environment") && nonEmptyString.holds(where);
  },
};

async function readSource(source: PinSource): Promise<string> {
  if ("environment" in source) {
    const value = process.env[source.environment];
    if (value === undefined) throw invalidPin(`${describePin(source)} is not set`);
    return value;
  }
  if ("command" in source) return outputOf(source.command);
  try {
    return await readFile(source.file, "utf8");
  } catch (error) {
    throw invalidPin(`${describePin(source)} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}

function outputOf([program, ...args]: readonly [string, ...string[]]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(program, args, { encoding: "utf8", timeout: commandTimeoutMs, maxBuffer: 65_536 }, (error, output) => {
      // The error itself is omitted, because it contains the command's output.
      if (error === null) resolve(output);
      else
        reject(invalidPin(`the command ${JSON.stringify(program)} failed (${error.code ?? error.signal ?? "killed"})`));
    });
  });
}

/** Returns a source's name for messages, without a command's arguments. */
export function describePin(source: PinSource): string {
  if ("file" in source) return `file ${source.file}`;
  return "environment" in source
    ? `environment variable ${source.environment}`
    : `the output of the command ${JSON.stringify(source.command[0])}`;
}

const invalidPin = (rule: string): ConfigError => invalidOption(`pin: ${rule}`);

// Whether each PIN that this process has tried was accepted or refused. Each PIN is identified by its keyed hash.
const outcomes = new Map<string, "accepted" | "refused">();
const processKey = randomBytes(32);

/** Login attempts on one token with its PIN. */
export interface PinAttempts {
  /** The reason no further PIN is tried. */
  readonly refusal: TokenFailure | undefined;
  /** Begins an attempt. Must be called before the module is started. */
  begin(): void;
  /**
   * Returns the PIN for one attempt. Rejects with {@link TokenFailure} if the PIN has already been refused, or with an
   * error from {@link readPin}.
   */
  next(token: TokenDescription): Promise<string | undefined>;
  /** Records that the token accepted the PIN. */
  accepted(): void;
  /** Records a failure. If a login ended without a result, the PIN counts as refused, unless it was accepted before. */
  failed(failure: TokenFailure): void;
}

/**
 * Limits login attempts, because tokens lock after a few wrong PINs. No connection retries a refused PIN. If a login
 * fails for an unknown reason, the PIN counts as refused unless it was accepted before.
 */
export function createPinAttempts(source: PinSource | undefined, modulePath: string): PinAttempts {
  /** Hash of the most recent PIN. */
  let last = "";
  let refusal: TokenFailure | undefined;
  return {
    get refusal() {
      return outcomes.get(last) === "accepted" ? undefined : refusal;
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
      if (outcomes.get(last) !== "refused") return pin;
      throw new TokenFailure("pin", "the token may already have rejected this PIN", true);
    },

    accepted() {
      if (last !== "") outcomes.set(last, "accepted");
    },

    failed(failure) {
      const isDoubted = failure.reason === "login" && outcomes.get(last) !== "accepted";
      if (failure.reason !== "pin" && !isDoubted) return;
      refusal = failure;
      if (last !== "") outcomes.set(last, "refused");
    },
  };
}
