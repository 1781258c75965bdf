import { ClientDocumentError } from "../../base/errors.ts";
import { isGiven, jsonOf, memberOf } from "../../base/json.ts";
import { object, string, strings } from "../../base/options.ts";
import { isLoopback, shownUrl } from "../../base/urls.ts";
import { entriesOf, maxUntrustedKeys, secretMembers } from "../../keys/jwk/verification-keys.ts";
import { urlProblem } from "./client-id.ts";

const maxDepth = 8;
const maxMembers = 100;

/**
 * Members of a metadata document. Known members have been checked, and others are unchanged.
 *
 * @see RFC 7591 section 2
 */
export interface ClientMetadata {
  readonly client_id: string;
  readonly client_name: string;
  readonly redirect_uris: readonly string[];
  readonly client_uri?: string | null;
  readonly logo_uri?: string | null;
  readonly tos_uri?: string | null;
  readonly policy_uri?: string | null;
  readonly scope?: string | null;
  readonly grant_types?: readonly string[] | null;
  readonly response_types?: readonly string[] | null;
  readonly token_endpoint_auth_method?: string | null;
  readonly token_endpoint_auth_methods_supported?: readonly string[] | null;
  readonly token_endpoint_auth_signing_alg?: string | null;
  readonly request_object_signing_alg?: string | null;
  readonly jwks?: { readonly keys: readonly object[] } | null;
  readonly jwks_uri?: string | null;
  readonly [member: string]: unknown;
}

/** Members whose type is checked. @see RFC 7591 section 2 */
const types: readonly (readonly [type: string, holds: (value: unknown) => boolean, names: readonly string[]])[] = [
  [
    "a string",
    string.holds,
    [
      "scope",
      "application_type",
      "token_endpoint_auth_method",
      "token_endpoint_auth_signing_alg",
      "request_object_signing_alg",
    ],
  ],
  ["a list of strings", strings.holds, ["grant_types", "response_types", "token_endpoint_auth_methods_supported"]],
  ["an http or https URL", isPage, ["client_uri", "logo_uri", "tos_uri", "policy_uri"]],
];
/** Schemes that would make a browser run or read something. */
const forbiddenSchemes = new Set(["javascript:", "data:", "vbscript:", "blob:", "file:", "about:", "view-source:"]);

/**
 * Reads a client's metadata document and freezes it. Keeps members that are not checked.
 *
 * @param clientId its URL, already checked; the `jwks_uri` may be on a loopback host only if this URL is
 * @throws ClientDocumentError `ERR_CLIENT_DOCUMENT`, `ERR_CLIENT_KEYS_MISSING`
 * @see draft-ietf-oauth-client-id-metadata-document-02 section 4; MCP 2026-07-28, Client Registration
 */
export function readClientMetadata(text: string, clientId: string): ClientMetadata {
  const refuse = (rule: string): ClientDocumentError =>
    new ClientDocumentError("ERR_CLIENT_DOCUMENT", `${shownUrl(clientId)}: the client's metadata document ${rule}`);
  const document = jsonOf(text);
  if (!object.holds(document)) throw refuse("is not a JSON object");
  freeze(document, refuse, 1);

  const metadata = document as ClientMetadata;
  if (metadata.client_id !== clientId) throw refuse('has a "client_id" that differs from its URL');
  for (const name of ["client_secret", "client_secret_expires_at"])
    if (Object.hasOwn(metadata, name)) throw refuse(`has a "${name}", which a public document must not have`);
  if (!string.holds(metadata.client_name) || metadata.client_name.trim() === "") throw refuse('has no "client_name"');
  for (const [type, holds, names] of types)
    for (const name of names)
      if (isPresent(metadata[name]) && !holds(metadata[name])) throw refuse(`has a "${name}" that is not ${type}`);
  const { redirect_uris: redirectUris } = metadata;
  if (!strings.holds(redirectUris) || redirectUris.length === 0) throw refuse('has no "redirect_uris"');
  for (const uri of redirectUris) checkRedirectUri(uri, refuse);
  checkKeys(metadata, refuse);
  return metadata;
}

type Refuse = (rule: string) => ClientDocumentError;

/** Freezes a value and everything in it. Rejects a value that is too deep or too wide or contains a secret key. */
function freeze(value: unknown, refuse: Refuse, depth: number): void {
  if (typeof value !== "object" || value === null) return;
  const members = Object.values(value);
  if (depth > maxDepth) throw refuse(`has more than ${maxDepth} levels`);
  if (members.length > maxMembers) throw refuse(`has more than ${maxMembers} members in one object or array`);
  if (memberOf(value, "kty") !== undefined && secretMembers.some((name) => isGiven(memberOf(value, name))))
    throw refuse("contains a private or symmetric key, which is now public");
  // If the value were assigned to a different object, this member would become that object's prototype, with unchecked
  // members.
  if (Object.hasOwn(value, "__proto__")) throw refuse('has a member "__proto__"');
  for (const member of members) freeze(member, refuse, depth + 1);
  Object.freeze(value);
}

/** Reports whether a member has a value. An empty list counts as a value, although it may be of the wrong type. */
const isPresent = (value: unknown): boolean => isGiven(value) || Array.isArray(value);

function isPage(value: unknown): boolean {
  return typeof value === "string" && URL.canParse(value) && /^https?:$/.test(new URL(value).protocol);
}

function checkRedirectUri(uri: string, refuse: Refuse): void {
  if (!URL.canParse(uri) || /[#\s\p{Cc}]/u.test(uri))
    throw refuse("has a redirect URI that is not an absolute URL or that has a fragment");
  const { protocol, hostname, username, password } = new URL(uri);
  if (forbiddenSchemes.has(protocol) || (protocol === "http:" && !isLoopback(hostname)))
    throw refuse("has a redirect URI with a forbidden scheme; http is allowed only for loopback hosts");
  if (username !== "" || password !== "") throw refuse("has a redirect URI with a user name or password");
}

/**
 * Returns the methods that a client offers in the registered member and in the list from OpenID Connect RP Metadata
 * Choices. If a client has neither, it is treated as public, because the default in RFC 7591 requires a secret.
 *
 * @see RFC 7591 section 2; draft-ietf-oauth-client-id-metadata-document-03 section 6
 */
export function offeredMethods(metadata: ClientMetadata): readonly string[] {
  const { token_endpoint_auth_method: one, token_endpoint_auth_methods_supported: several } = metadata;
  return several || [one || "none"];
}

/** Checks a document's methods and keys. */
function checkKeys(metadata: ClientMetadata, refuse: Refuse): void {
  const { client_id: clientId, jwks, jwks_uri: jwksUri, token_endpoint_auth_method: method } = metadata;
  const methods = offeredMethods(metadata);
  if (isPresent(method) && !methods.includes(method as string))
    throw refuse('has a "token_endpoint_auth_method" that is not in its "token_endpoint_auth_methods_supported"');
  // Every symmetric method in the IANA registry has this prefix.
  if (methods.some((method) => method.startsWith("client_secret_")))
    throw refuse("offers an authentication method with a shared secret, which a public document cannot establish");
  if (isPresent(jwks) && isPresent(jwksUri)) throw refuse('has both "jwks" and "jwks_uri" (RFC 7591 section 2)');
  const problem = isPresent(jwksUri) ? urlProblem(jwksUri, isLoopback(new URL(clientId).hostname)) : undefined;
  if (problem !== undefined) throw refuse(`has a "jwks_uri" that ${problem}`);
  if (isPresent(jwks)) {
    try {
      entriesOf(jwks, maxUntrustedKeys);
    } catch {
      throw refuse(`has a "jwks" that is not a JWK Set of at most ${maxUntrustedKeys} keys`);
    }
  }
  if (!methods.includes("private_key_jwt") || isGiven(jwksUri) || isGiven(jwks?.keys)) return;
  const message = `${shownUrl(clientId)}: the client offers private_key_jwt, but its metadata document has no keys`;
  throw new ClientDocumentError("ERR_CLIENT_KEYS_MISSING", message);
}
