import { type Refusal, type Scheme, invalidRequest, invalidToken } from "./refusal.ts";

/** What a guard sees of a request. Header fields that came several times are joined by commas. */
export interface GuardedRequest {
  readonly method: string;
  /** The request target: path and query. */
  readonly target: string;
  /** `Authorization`. */
  readonly authorization: string | undefined;
  /** `DPoP`. */
  readonly proof: string | undefined;
  /** The request as the adapter has it, for the function `certificate`. */
  readonly source: object;
  /** The request as the server has it: one object, however many adapters see it. */
  readonly raw: object;
}

/** A token and the scheme under which it came. */
export interface Credentials {
  readonly scheme: Scheme;
  readonly token: string;
}

const schemes: readonly Scheme[] = ["Bearer", "DPoP"];
/** A scheme, then spaces, then one token. @see RFC 6750 section 2.1; RFC 9449 section 7.1; RFC 9110 section 11.4 */
const form = /^[!#$%&'*+\-.^_`|~\w]+ +([\w\-.~+/]+=*)$/;

/** Returns the scheme of the header field `Authorization`, if it is one of these. @see RFC 9110 section 11.1 */
export function schemeOf(authorization: string = "", among: readonly Scheme[]): Scheme | undefined {
  const [name = ""] = /^[!#$%&'*+\-.^_`|~\w]*/.exec(authorization) ?? [];
  return among.find((scheme) => scheme.toLowerCase() === name.toLowerCase());
}

/** Finds the one token of a request in its header field `Authorization`. Several such fields are joined by commas. A second token in the query is refused. */
export function credentialsOf(
  authorization: string | undefined,
  target: string,
  offered: readonly Scheme[],
): Credentials | Refusal {
  const scheme = schemeOf(authorization, schemes);
  const [, token] = form.exec(authorization ?? "") ?? [];
  // Without a token for one of its schemes, a request lacks authentication and is told no error. RFC 6750 section 3
  if (scheme === undefined || !offered.includes(scheme)) {
    // A token that needs no proof is an error where proofs are required, so the client does not send it again.
    if (scheme === "Bearer" && token !== undefined) return invalidToken("a token needs a proof here; send it as DPoP");
    return { status: 401, hint: lackOf(authorization, offered) };
  }
  if (token === undefined) return invalidRequest("the header Authorization is a scheme, a space and one token");
  if (hasQueryToken(target)) return invalidRequest("a token in the query is refused; send one token, in the header");
  return { scheme, token };
}

/** A token of RFC 6750. */
const tokenForm = /^[\w\-.~+/]+=*$/;
/** That of a JWS: what is shorter may be in a URL by chance. */
const jwsForm = /^[\w-]+\.[\w-]*\.[\w-]*$/;

/** Credentials of a token that is in no header. It may not be in the URL, however it is escaped there. */
export function credentialsElsewhere(token: unknown, target: string): Credentials | Refusal {
  if (typeof token !== "string" || !tokenForm.test(token)) return invalidToken("this is no token");
  const url = target.replaceAll(/%([\da-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  if (jwsForm.test(token) && url.includes(token)) return invalidRequest("a token in the URL is refused");
  if (hasQueryToken(target)) return invalidRequest("a token in the query is refused; send one token");
  return { scheme: "Bearer", token };
}

function lackOf(authorization = "", [scheme]: readonly Scheme[]): string {
  if (authorization === "") return "there is no header Authorization";
  if (/\s/.test(authorization.trim())) return "the header Authorization has a scheme that is not offered here";
  return `the header Authorization is not ${scheme}, a space and a token`;
}

/** @see RFC 6750 section 2: no more than one method of sending a token */
export function hasQueryToken(target: string): boolean {
  const start = target.indexOf("?");
  return start !== -1 && new URLSearchParams(target.slice(start)).has("access_token");
}
