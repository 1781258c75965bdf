import { systemClock } from "../base/clock.ts";
import { KeyMaterialError, invalidOption } from "../base/errors.ts";
import { type Given, type Optional, checkOptions, string } from "../base/options.ts";
import { rotationMode } from "../publish/rotation-predicate.ts";
import type { KeysetSource } from "./managed-keys.ts";
import { type ProviderOptions, mergeOptions } from "./options.ts";
import { type ProviderSetup, alreadyInKeys, provide } from "./provider.ts";
import type { Provider } from "./types.ts";

/**
 * Creates a provider from its options, which are merged left to right. Checks all options and keys before the first
 * request. If `keys` is given, the provider follows it.
 *
 * The function is asynchronous because Web Crypto is, and no other crypto API is available in every runtime.
 *
 * @example
 * ```ts
 * const provider = await createProvider({ keys: manager });
 * createServer(provider.node).listen(3000);
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`, `ERR_PATH_INVALID`
 * @throws KeyMaterialError `ERR_KEYSET_EMPTY`, `ERR_KID_INVALID`, `ERR_KID_DUPLICATE`, `ERR_KEY_DUPLICATE`,
 * `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_PURPOSE`, `ERR_PRIVATE_KEY_MISSING`
 */
export async function createProvider(...options: readonly Optional<ProviderOptions>[]): Promise<Provider> {
  const provider = await provide(setupOf(options));
  await provider.follow();
  return provider.publicPart;
}

/**
 * Resolves a provider's options.
 *
 * @throws ConfigError, KeyMaterialError, for the same reasons as `createProvider`
 */
export function setupOf(options: readonly Optional<ProviderOptions>[]): ProviderSetup {
  const given = mergeOptions(options);
  const { keys, keyset = [], encryptionKeyset = [], endpoints = {}, cors = true, discovery = true, metadata } = given;
  const { onWarning = (warning) => console.warn(`jwksd: ${warning.message}`), onEvent, mountPrefix } = given;
  const { maxTokenLifetimeSeconds, signerLimits, clock = systemClock } = given;
  checkOptions(endpoints, { jwks: string }, "endpoint");
  if (!discovery && metadata !== undefined)
    throw invalidOption(
      '"metadata" sets members of the discovery document, but "discovery" is false; remove one of them',
    );
  if (keys !== undefined) checkWithKeys(keys, given);
  else if (given.keyset === undefined)
    throw new KeyMaterialError(
      "ERR_KEYSET_EMPTY",
      'the "keyset" option is missing; set it to the signing keys, or set "keys"',
    );
  const issuer = keys?.issuer ?? given.issuer;
  return {
    site: { issuer, mountPrefix, jwksPath: endpoints.jwks ?? undefined, discovery, metadata, cors },
    keys,
    onDemand: keys?.onDemand,
    keyset,
    encryptionKeyset,
    mode: rotationMode(keys === undefined ? given.jwksRotationActive : () => keys.isRotating, onWarning),
    maxTokenLifetimeSeconds,
    signerLimits,
    clock,
    onEvent,
  };
}

/** Options that are not allowed with managed keys, because managed keys replace them. */
const replacedOptions = ["keyset", "jwksRotationActive", "maxTokenLifetimeSeconds"] as const;

/** Checks the options that are given in addition to managed keys. @throws ConfigError `ERR_OPTION_INVALID` */
function checkWithKeys(keys: KeysetSource, given: Given<ProviderOptions>): void {
  const conflicting = replacedOptions.find((name) => given[name] !== undefined);
  if (conflicting !== undefined) throw alreadyInKeys(conflicting);
  if (given.issuer !== undefined && given.issuer !== keys.issuer)
    throw invalidOption(`"issuer" differs from the issuer of "keys", ${JSON.stringify(keys.issuer)}; remove "issuer"`);
}
