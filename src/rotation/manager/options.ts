import { invalidOption } from "../../base/errors.ts";
import {
  type Given,
  type Rule,
  type Rules,
  array,
  boolean,
  callback,
  checkOptions,
  clock,
  number,
  object,
  required,
  string,
  withMethods,
} from "../../base/options.ts";
import { locate } from "../../publish/document-paths.ts";
import type { KeyManagerOptions, KeyManagerEvent } from "./types.ts";

export const wrappingKeysRule: Rule<string | readonly unknown[]> = {
  must: "a string or an array of strings",
  types: ["string", "array"],
  holds: (value): value is string | readonly unknown[] => string.holds(value) || array.holds(value),
};

export const registerRule = withMethods("read", "write");

const rules: Rules<KeyManagerOptions> = {
  issuer: string,
  store: required(registerRule),
  initialPolicy: object,
  wrappingKeys: required(wrappingKeysRule),
  createSigner: callback,
  openSigner: callback,
  destroySigner: callback,
  signs: boolean,
  requireStore: boolean,
  onDemand: boolean,
  refreshSeconds: number(1),
  waitUntil: callback,
  replicaName: string,
  onEvent: callback,
  clock,
};

/**
 * Rejects invalid options before a first key is generated for the issuer that they name.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`
 */
export function checkManagerOptions(options: KeyManagerOptions): Given<KeyManagerOptions> {
  const given = checkOptions(options, rules);
  if ((given.createSigner ?? given.destroySigner) !== undefined && given.openSigner === undefined) {
    throw invalidOption("createSigner and destroySigner also need openSigner, which opens an existing key; add it");
  }
  locate(given);
  return given.requireStore === undefined && given.onDemand !== true ? { onEvent: warnOfFirstKey, ...given } : given;
}

/** Reports whether this process has just generated a store's first key. */
export function isFirstKey({ by, records, events }: Extract<KeyManagerEvent, { readonly type: "changed" }>): boolean {
  return (
    by === "this" && records.every(({ kid }) => events.some((event) => event.type === "announced" && event.kid === kid))
  );
}

/**
 * Warns about a first key if the application has no listener and does not set `requireStore`. If the store is lost, the
 * next start looks like a first start, and without this warning, the first symptom would be failed logins.
 */
function warnOfFirstKey(event: KeyManagerEvent): void {
  if (event.type === "store-emptied") warn(event.error.message);
  if (event.type !== "changed" || !isFirstKey(event)) return;
  warn(
    'the key store had no keys, so a first key was generated. At the first start, this is expected: set requireStore: true from now on. Otherwise, tokens signed with the old keys now fail: stop this process and see "A lost store" in docs/emergencies.md. To turn off this warning, set requireStore: false',
  );
}

function warn(message: string): void {
  // Some runtimes have no process, or only parts of one.
  const { process } = globalThis as { process?: Partial<NodeJS.Process> };
  process?.emitWarning?.(message, "JwksdWarning");
}
