import { metadataPart, wellKnownPath } from "../../base/urls.ts";
import type { Key } from "../decode-key.ts";
import { type Note, note } from "../finding.ts";
import { isForSignatures, verifiesUnder } from "../key-purpose.ts";
import { isObject, readJson } from "../lenient-json.ts";
import type { HttpExchange, Failure, Observations } from "../observations.ts";
import { isPrivate, statusText } from "../read-exchange.ts";
import { bodyText, quoted, quotedName, typeText, urlText } from "../value-text.ts";
import { checkPrivate } from "./embedded-secrets.ts";
import { checkMediaType } from "./http.ts";

/** Kinds of failure in which a server responded but the response was incomplete. */
const incompleteKinds: ReadonlySet<Failure["kind"]> = new Set(["timeout", "too-large", "limit", "protocol"]);

/** Checks the discovery document and whether the keys match it. */
export function checkDiscovery(
  { discovery, metadata, set, issuer }: Observations,
  keys: readonly Key[] | undefined,
): Note[] {
  if (discovery === undefined) return [];
  const { status, body, url, failure } = discovery;
  if (failure !== undefined && incompleteKinds.has(failure.kind)) return [note("DISCOVERY_STATUS", failure.detail)];
  if (status !== undefined && status !== 200) return [note("DISCOVERY_STATUS", statusText(discovery))];
  if (body === undefined) return [];
  const { text, value, notes } = readJson(body, "discovery document");
  if (!isObject(value)) return [...notes, note("DISCOVERY_NOT_JSON", bodyText(text))];
  return [
    ...notes,
    ...checkPrivate(value, "discovery document"),
    ...checkRequired(value, url?.includes(wellKnownPath("oauth-authorization-server")) !== true),
    ...(discovery.status === undefined ? [] : checkMediaType(discovery, ["application/json"], "DISCOVERY_MEDIA_TYPE")),
    ...checkIssuerMember(value["issuer"], issuer, url),
    ...checkJwksUri(value["jwks_uri"], value["issuer"], set),
    ...checkAlgorithms(value, keys),
    ...checkPaths(metadata ?? [], value["issuer"]),
  ];
}

function checkIssuerMember(issuer: unknown, configured: string | undefined, url: string | undefined): Note[] {
  if (typeof issuer !== "string" || issuer === "") return [note("DISCOVERY_ISSUER_MISSING", typeText(issuer))];
  // The document's URL does not show whether the issuer ends with a slash.
  const expected = configured ?? (url === undefined ? issuer : url.replace(metadataPart, ""));
  const notes = URL.canParse(issuer) && /[?#]/.test(issuer) ? [note("DISCOVERY_ISSUER_QUERY", quoted(issuer))] : [];
  if (issuer === expected || (configured === undefined && withoutSlash(issuer) === withoutSlash(expected)))
    return notes;
  return [...notes, note(issuerDifference(issuer, expected), `${quoted(issuer)} instead of ${quoted(expected)}`)];
}

/** Checks that each of the metadata URLs returns metadata for the same issuer. */
function checkPaths(metadata: readonly HttpExchange[], issuer: unknown): Note[] {
  return metadata.flatMap(({ url = "", redirects = [], status, body, failure }) => {
    const { value } = readJson(body ?? new Uint8Array(), "");
    if (status === 200 && isObject(value) && value["issuer"] === issuer) return [];
    const response = failure?.detail ?? (status === 200 ? "no metadata for this issuer" : `status ${status}`);
    return [note("DISCOVERY_PATHS", `${urlText(redirects[0] ?? url)}: ${response}`)];
  });
}

/** Microsoft Entra hosts, whose URLs may refer to any tenant. */
const entraHost =
  /^(login\.microsoftonline\.(com|us)|login\.partner\.microsoftonline\.cn|sts\.windows\.net|.+\.(b2clogin|ciamlogin)\.com)$/;
const isEntra = (issuer: string): boolean => URL.canParse(issuer) && entraHost.test(new URL(issuer).hostname);

/**
 * Checks that the members required for an OpenID provider or an authorization server are present. An issuer without
 * login endpoints does not need them.
 *
 * @see OpenID Connect Discovery 1.0 section 3, RFC 8414 section 2
 */
function checkRequired(document: Readonly<Record<string, unknown>>, isOpenId: boolean): Note[] {
  const endpoints = ["authorization_endpoint", "token_endpoint", "userinfo_endpoint"];
  if (!endpoints.some((name) => document[name] !== undefined)) return [];
  const responses = document["response_types_supported"];
  const isImplicit = Array.isArray(responses) && responses.every((type) => !String(type).split(" ").includes("code"));
  const grants = document["grant_types_supported"];
  const isDirect = !isOpenId && Array.isArray(grants) && !grants.some((grant) => withAuthorization.has(grant));
  const missing = [
    ...(isDirect ? [] : ["authorization_endpoint"]),
    ...(isImplicit ? [] : ["token_endpoint"]),
    "response_types_supported",
    ...(isOpenId ? ["subject_types_supported", "id_token_signing_alg_values_supported"] : []),
  ].filter((name) => document[name] === undefined);
  return missing.length === 0 ? [] : [note("DISCOVERY_MEMBERS_MISSING", missing.join(", "))];
}

/** Grants that begin at the authorization endpoint. */
const withAuthorization: ReadonlySet<unknown> = new Set(["authorization_code", "implicit"]);

function issuerDifference(one: string, other: string) {
  const [a, b] = [withoutSlash(one), withoutSlash(other)];
  if (a === b) return "DISCOVERY_ISSUER_SLASH";
  if (a.toLowerCase() === b.toLowerCase()) return "DISCOVERY_ISSUER_CASE";
  if (!URL.canParse(a) || !URL.canParse(b)) return "DISCOVERY_ISSUER_OTHER";
  const [urlA, urlB] = [new URL(a), new URL(b)];
  if (isEntra(a) && isEntra(b) && urlA.protocol === urlB.protocol) return "DISCOVERY_ISSUER_ENTRA";
  if (urlA.search !== urlB.search || urlA.hash !== urlB.hash) return "DISCOVERY_ISSUER_OTHER";
  if (urlA.hostname !== urlB.hostname || withoutSlash(urlA.pathname) !== withoutSlash(urlB.pathname)) {
    return "DISCOVERY_ISSUER_OTHER";
  }
  return "DISCOVERY_ISSUER_ORIGIN";
}

const withoutSlash = (text: string): string => text.replace(/\/$/, "");

function checkJwksUri(uri: unknown, issuer: unknown, set: HttpExchange | undefined): Note[] {
  if (typeof uri !== "string" || !URL.canParse(uri)) return [note("DISCOVERY_JWKS_URI_MISSING", quotedName(uri))];
  const { protocol, hostname } = new URL(uri);
  // No verifier reads keys from a file: or data: URL.
  if (protocol !== "https:" && protocol !== "http:")
    return [note("DISCOVERY_JWKS_URI_HTTP", quotedName(`${protocol}…`))];
  const issuerUrl = typeof issuer === "string" && URL.canParse(issuer) ? new URL(issuer) : undefined;
  // If the issuer's URL is private, the JWK Set's URL may be private too.
  if (isPrivate(uri) && !(issuerUrl !== undefined && isPrivate(issuerUrl.href))) {
    return [note("DISCOVERY_JWKS_URI_PRIVATE", urlText(uri))];
  }
  if (protocol !== "https:" && issuerUrl?.protocol !== "http:") return [note("DISCOVERY_JWKS_URI_HTTP", urlText(uri))];
  // A public name can resolve to a private address.
  if (set?.failure?.kind === "forbidden-address")
    return [note("DISCOVERY_JWKS_URI_PRIVATE", `${urlText(uri)}: ${set.failure.detail}`)];
  if (issuerUrl !== undefined && site(hostname) !== site(issuerUrl.hostname)) {
    return [note("DISCOVERY_JWKS_URI_SITE", `${hostname} for ${issuerUrl.hostname}`)];
  }
  return [];
}

/**
 * Returns a name's last two labels, or three under a suffix such as co.uk. This approximates the public suffix list.
 */
function site(hostname: string): string {
  if (hostname.startsWith("[") || /^[\d.]+$/.test(hostname)) return hostname;
  const hasLongSuffix = /\.(ac|co|com|edu|go|gov|ne|net|or|org)\.[a-z]{2}$/.test(hostname);
  return hostname
    .split(".")
    .slice(hasLongSuffix ? -3 : -2)
    .join(".");
}

/** Matches algorithms that do not need a key in the set: `none`, and HMAC with a client secret. */
const withoutKey = /^(none|HS\d+)$/;

function checkAlgorithms(document: Readonly<Record<string, unknown>>, keys: readonly Key[] | undefined): Note[] {
  const supported = document["id_token_signing_alg_values_supported"];
  if (!Array.isArray(supported)) return [];
  const advertised = supported.filter((alg): alg is string => typeof alg === "string");
  const notes = advertised.includes("none") ? [note("DISCOVERY_ALG_NONE", "none")] : [];
  // If there is no authorization endpoint, this is not an OpenID provider, so RS256 is not required.
  if (document["authorization_endpoint"] !== undefined && !advertised.includes("RS256")) {
    notes.push(note("DISCOVERY_RS256_MISSING", advertised.slice(0, 8).map(quotedName).join(", ")));
  }
  const signing = keys?.filter(({ jwk }) => isForSignatures(jwk)) ?? [];
  // A set without signing keys is a separate finding.
  if (signing.length === 0) return notes;
  for (const alg of new Set(advertised)) {
    // A key whose alg does not fit is a separate finding.
    const hasKey = signing.some(({ jwk }) => jwk["alg"] === alg || verifiesUnder(jwk).includes(alg));
    if (!hasKey && !withoutKey.test(alg)) {
      notes.push(note("DISCOVERY_ALG_WITHOUT_KEY", quotedName(alg)));
    }
  }
  for (const { jwk, name } of signing) {
    const algorithms = verifiesUnder(jwk);
    if (algorithms.length > 0 && !algorithms.some((alg) => advertised.includes(alg))) {
      notes.push(note("DISCOVERY_KEY_WITHOUT_ALG", `${name}, for ${algorithms.join(", ")}`));
    }
  }
  return notes;
}
