import { ConfigError, invalidOption } from "../base/errors.ts";
import { folded } from "../base/member-names.ts";
import { type Place, locate } from "./paths.ts";

/** More members of the discovery document. @see OpenID Connect Discovery 1.0 section 3 */
export type Metadata = Readonly<Record<string, unknown>>;

/** Required members that jwksd does not set. @see OpenID Connect Discovery 1.0 section 3 */
const required = ["authorization_endpoint", "token_endpoint", "response_types_supported", "subject_types_supported"];

/** Members that jwksd sets. */
const own = new Set(["issuer", "jwks_uri", "id_token_signing_alg_values_supported"]);

/**
 * The discovery document: the members that jwksd sets, then the metadata of the provider.
 *
 * @throws ConfigError `ERR_METADATA_RESERVED`; `ERR_OPTION_INVALID` when the metadata is no plain data
 * @see OpenID Connect Discovery 1.0 section 3
 */
export function discoveryDocument(
  place: Place & { readonly metadata?: Metadata | undefined },
): Record<string, unknown> {
  const { metadata = {} } = place;
  checkMetadata(metadata, "metadata");
  // toJSON() could replace the whole document.
  if (typeof metadata["toJSON"] === "function")
    throw invalidOption('option "metadata" must be plain data, without toJSON()');
  const { issuer, jwksUri } = locate(place);
  const document = { issuer, jwks_uri: jwksUri, id_token_signing_alg_values_supported: ["ES256"], ...metadata };
  try {
    return JSON.parse(JSON.stringify(document)) as Record<string, unknown>;
  } catch {
    throw invalidOption('option "metadata" cannot be written as JSON');
  }
}

/**
 * @param where where the metadata is from, for messages
 * @throws ConfigError `ERR_METADATA_RESERVED`
 */
export function checkMetadata(metadata: Metadata, where: string): void {
  // Readers that pass over case would take the other member for the one of jwksd.
  const reserved = Object.keys(metadata).find((name) => own.has(folded(name)));
  if (reserved === undefined) return;
  throw new ConfigError(
    "ERR_METADATA_RESERVED",
    `${where} may not set ${JSON.stringify(reserved)}; jwksd sets "${folded(reserved)}" from the other options, so take it out`,
  );
}

/** Required members that a document with this metadata lacks. Clients need them, verifiers do not. */
export function missingMembers(metadata: Metadata): string[] {
  return required.filter((name) => (metadata[name] ?? undefined) === undefined);
}
