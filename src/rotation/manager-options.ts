import { ConfigError } from "../errors.ts";
import { checkNames, checkType } from "../provider/options.ts";
import { locate } from "../provider/paths.ts";
import type { KeyManagerOptions } from "./manager-types.ts";

/** The type that each option must have; also the list of the options that there are. */
const optionTypes: {
  readonly [Name in keyof Required<KeyManagerOptions>]: "string" | "object" | "array" | "function" | "boolean";
} = {
  issuer: "string",
  store: "object",
  policy: "object",
  wrappingKeys: "array",
  createSigner: "function",
  openSigner: "function",
  destroySigner: "function",
  signs: "boolean",
  onEvent: "function",
  clock: "object",
};

const methods = { store: ["load", "commit", "watch"], clock: ["now", "setTimer"] } as const;

/**
 * Refuses wrong options before a key is made and bound to them.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`
 */
export function checkManagerOptions(options: KeyManagerOptions): void {
  checkType("options", options ?? "null", "object");
  checkNames(options, Object.keys(optionTypes), "option");
  for (const name of Object.keys(optionTypes) as (keyof KeyManagerOptions)[]) {
    checkType(name, options[name], optionTypes[name]);
  }
  for (const name of ["store", "wrappingKeys"] as const) {
    if ((options[name] ?? undefined) === undefined) throw invalid(`option "${name}" is missing`);
  }
  for (const [name, needed] of Object.entries(methods)) {
    const value = options[name as keyof typeof methods] as Record<string, unknown> | undefined;
    const missing = value && needed.find((method) => typeof value[method] !== "function");
    if (missing !== undefined) throw invalid(`option "${name}" has no ${missing}()`);
  }
  if ((options.createSigner ?? options.destroySigner) !== undefined && options.openSigner === undefined) {
    throw invalid("createSigner and destroySigner need openSigner, which opens a key by its URI again");
  }
  locate(options.issuer);
}

const invalid = (rule: string): ConfigError => new ConfigError("ERR_OPTION_INVALID", rule);
