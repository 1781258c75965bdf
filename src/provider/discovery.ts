import { ConfigError } from "../errors.ts";
import { clientAlgorithms } from "../token/client-algorithms.ts";
import type { Metadata } from "./options.ts";

/**
 * The discovery document: what jwksd answers for, then the provider's own metadata.
 *
 * @throws ConfigError `ERR_METADATA_RESERVED`, `ERR_OPTION_INVALID` when it is no plain data
 * @see OpenID Connect Discovery 1.0 section 3
 */
export function discoveryDocument(input: {
  issuer: string;
  jwksUri: string;
  metadata: Metadata;
}): Record<string, unknown> {
  const own = {
    issuer: input.issuer,
    jwks_uri: input.jwksUri,
    id_token_signing_alg_values_supported: ["ES256"],
    token_endpoint_auth_signing_alg_values_supported: clientAlgorithms,
    request_object_signing_alg_values_supported: clientAlgorithms,
  };
  for (const name of Object.keys(input.metadata)) {
    if (Object.hasOwn(own, name)) {
      throw new ConfigError(
        "ERR_METADATA_RESERVED",
        `metadata may not set "${name}"; jwksd sets it from the other options`,
      );
    }
  }
  // It would replace the whole document.
  if (typeof input.metadata["toJSON"] === "function")
    throw new ConfigError("ERR_OPTION_INVALID", 'option "metadata" must be plain data, without toJSON()');
  try {
    return JSON.parse(JSON.stringify({ ...own, ...input.metadata })) as Record<string, unknown>;
  } catch {
    throw new ConfigError("ERR_OPTION_INVALID", 'option "metadata" cannot be written as JSON');
  }
}
