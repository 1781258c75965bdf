import { ConfigError } from "../errors.ts";
import { type OptionTypes, checkMethods, checkOptionTypes } from "../option-types.ts";
import { locate } from "../provider/paths.ts";
import type { KeyManagerOptions } from "./manager-types.ts";

const optionTypes: OptionTypes<KeyManagerOptions> = {
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

/**
 * Refuses wrong options before a key is made and bound to them.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`
 */
export function checkManagerOptions(options: KeyManagerOptions): void {
  checkOptionTypes(options, optionTypes);
  for (const name of ["store", "wrappingKeys"] as const) {
    if ((options[name] ?? undefined) === undefined) throw invalid(`option "${name}" is missing`);
  }
  checkMethods("store", options.store, ["load", "commit", "watch"]);
  checkMethods("clock", options.clock, ["now", "setTimer"]);
  if ((options.createSigner ?? options.destroySigner) !== undefined && options.openSigner === undefined) {
    throw invalid("createSigner and destroySigner need openSigner, which opens a key by its URI again");
  }
  locate(options.issuer);
}

const invalid = (rule: string): ConfigError => new ConfigError("ERR_OPTION_INVALID", rule);
