import { RefusedRequest, type Scheme, invalidRequest, invalidToken } from "./refusal.ts";

/** The part of a request that a guard reads, in which repeated header fields are joined with commas. */
export interface GuardedRequest {
  readonly method: string;
  /** Request target: the path and the query. */
  readonly target: string;
  /** `Authorization` header. */
  readonly authorization: string | undefined;
  /** `DPoP` header. */
  readonly proof: string | undefined;
  /** The request as the framework passes it, for the application's functions. */
  readonly source: object;
  /** The server's own request object, which is the same in all adapters. */
  readonly raw: object;
}

/** A token and its scheme. */
export interface Credentials {
  readonly scheme: Scheme;
  readonly token: string;
}

const knownSchemes: readonly Scheme[] = ["Bearer", "DPoP"];
/** Matches a scheme, spaces and one token. @see RFC 6750 section 2.1; RFC 9449 section 7.1; RFC 9110 section 11.4 */
const authorizationForm = /^[!#$%&'*+\-.^_`|~\w]+ +([\w\-.~+/]+=*)$/;

/** Returns an `Authorization` header's scheme, if it is one of the schemes in `among`. @see RFC 9110 section 11.1 */
export function schemeOf(authorization: string = "", among: readonly Scheme[]): Scheme | undefined {
  const [name = ""] = /^[!#$%&'*+\-.^_`|~\w]*/.exec(authorization) ?? [];
  return among.find((scheme) => scheme.toLowerCase() === name.toLowerCase());
}

/**
 * Returns the token from a request's `Authorization` header. Rejects a second token in the query.
 *
 * @throws RefusedRequest
 */
export function credentialsOf(
  authorization: string | undefined,
  target: string,
  accepted: readonly Scheme[],
): Credentials {
  const scheme = schemeOf(authorization, knownSchemes);
  const [, token] = authorizationForm.exec(authorization ?? "") ?? [];
  // A request without a token for an accepted scheme is not authenticated, and its challenge has no error (RFC 6750
  // section 3).
  if (scheme === undefined || !accepted.includes(scheme)) {
    // If proofs are required, a token without a proof is an error, so that the client does not send it again.
    if (scheme === "Bearer" && token !== undefined)
      throw invalidToken("this request needs a DPoP proof; send the token with the DPoP scheme");
    throw new RefusedRequest({ status: 401, hint: missingCredentials(authorization, accepted) });
  }
  if (token === undefined)
    throw invalidRequest("the Authorization header must consist of a scheme, a space and one token");
  if (hasQueryToken(target)) throw invalidRequest("tokens in the query are rejected; send one token, in the header");
  return { scheme, token };
}

/** @see RFC 6750 section 2.1 */
const tokenForm = /^[\w\-.~+/]+=*$/;
/** Matches a JWS. A URL is searched only for a JWS, because a shorter token might occur there by chance. */
const jwsForm = /^[\w-]+\.[\w-]*\.[\w-]*$/;

/**
 * Returns the credentials for a token that the `token` option found. Rejects a token that the URL also contains,
 * however it is escaped there.
 *
 * @throws RefusedRequest
 */
export function credentialsElsewhere(token: unknown, target: string): Credentials {
  if (typeof token !== "string" || !tokenForm.test(token)) throw invalidToken("this is not a token");
  const url = target.replaceAll(/%([\da-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  if (jwsForm.test(token) && url.includes(token)) throw invalidRequest("tokens in the URL are rejected");
  if (hasQueryToken(target)) throw invalidRequest("tokens in the query are rejected; send one token");
  return { scheme: "Bearer", token };
}

function missingCredentials(authorization = "", [scheme]: readonly Scheme[]): string {
  if (authorization === "") return "there is no Authorization header";
  if (/\s/.test(authorization.trim())) return "the Authorization header has a scheme that is not accepted here";
  return `the Authorization header must have the form "${scheme} TOKEN"`;
}

/**
 * Reports whether there is a token in the query.
 *
 * @see RFC 6750 section 2 (a client must use only one method to send a token)
 */
export function hasQueryToken(target: string): boolean {
  const start = target.indexOf("?");
  return start !== -1 && new URLSearchParams(target.slice(start)).has("access_token");
}
