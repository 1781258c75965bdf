import { ConfigError } from "../../base/errors.ts";
import {
  type Given,
  type Rules,
  array,
  boolean,
  callback,
  checkOptions,
  clock,
  object,
  string,
  withMethods,
} from "../../base/options.ts";
import { locate } from "../../library/provider/paths.ts";
import type { KeyManagerOptions } from "./types.ts";

const rules: Rules<KeyManagerOptions> = {
  issuer: string,
  store: withMethods("load", "commit", "join", "renew", "leave", "watch"),
  policy: object,
  wrappingKeys: {
    must: "a string or an array of strings",
    holds: (value): value is string | readonly unknown[] => string.holds(value) || array.holds(value),
  },
  createSigner: callback,
  openSigner: callback,
  destroySigner: callback,
  signs: boolean,
  requireStore: boolean,
  replicaName: string,
  onEvent: callback,
  clock,
};

/**
 * Refuses wrong options before a first key is made for the issuer that they name.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`
 */
export function checkManagerOptions(options: KeyManagerOptions): Given<KeyManagerOptions> {
  const given = checkOptions(options, rules);
  for (const name of ["store", "wrappingKeys"] as const) {
    if ((given[name] as unknown) === undefined) throw invalid(`option "${name}" is missing`);
  }
  if ((given.createSigner ?? given.destroySigner) !== undefined && given.openSigner === undefined) {
    throw invalid("createSigner and destroySigner need openSigner, which opens a key by its URI again");
  }
  locate(given.issuer);
  return given;
}

const invalid = (rule: string): ConfigError => new ConfigError("ERR_OPTION_INVALID", rule);
