import { folded } from "../base/duplicate-members.ts";
import { invalidOption } from "../base/errors.ts";
import { type Place, locate } from "./document-paths.ts";

/** Additional members of the discovery document. @see OpenID Connect Discovery 1.0 section 3 */
export type Metadata = Readonly<Record<string, unknown>>;

/** Required members that jwksd does not set. @see OpenID Connect Discovery 1.0 section 3 */
const required = ["authorization_endpoint", "token_endpoint", "response_types_supported", "subject_types_supported"];

/** Members that jwksd sets. */
const own = new Set(["issuer", "jwks_uri", "id_token_signing_alg_values_supported"]);

/**
 * Returns the discovery document, which has the members that jwksd sets, followed by the provider's metadata.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`, including when the metadata is not plain data
 * @see OpenID Connect Discovery 1.0 section 3
 */
export function discoveryDocument(
  place: Place & { readonly metadata?: Metadata | undefined },
): Record<string, unknown> {
  const { metadata = {} } = place;
  checkMetadata(metadata, "metadata");
  // toJSON() could replace the whole document.
  if (typeof metadata["toJSON"] === "function")
    throw invalidOption('the "metadata" option must be plain data, without toJSON()');
  const { issuer, jwksUri } = locate(place);
  const document = { issuer, jwks_uri: jwksUri, id_token_signing_alg_values_supported: ["ES256"], ...metadata };
  try {
    return JSON.parse(JSON.stringify(document)) as Record<string, unknown>;
  } catch {
    throw invalidOption('the "metadata" option must be serializable as JSON');
  }
}

/**
 * Rejects metadata that contains a member that jwksd sets.
 *
 * @param source where the metadata comes from, for messages
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function checkMetadata(metadata: Metadata, source: string): void {
  // Parsers that ignore case could use that member instead of jwksd's.
  const reserved = Object.keys(metadata).find((name) => own.has(folded(name)));
  if (reserved === undefined) return;
  throw invalidOption(
    `${source} must not set ${JSON.stringify(reserved)}, because jwksd sets "${folded(reserved)}" from the other options; remove it`,
  );
}

/**
 * Returns the required members that would be missing from a document with this metadata. Clients need them; verifiers
 * do not.
 */
export function missingMembers(metadata: Metadata): string[] {
  return required.filter((name) => (metadata[name] ?? undefined) === undefined);
}
