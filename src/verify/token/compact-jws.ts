import type { JWTHeaderParameters, JWTPayload } from "jose";
import * as base64 from "jose/base64url";
import { decodeProtectedHeader } from "jose/decode/protected_header";
import { TokenError } from "../../base/errors.ts";
import { object } from "../../base/options.ts";

/** Maximum length of a token. Longer tokens are rejected before they are parsed. */
export const maxTokenBytes = 16_384;
const base64url = "(?:[\\w-]{4})*(?:[\\w-][AQgw]|[\\w-]{2}[AEIMQUYcgkosw048])?";
/**
 * Matches three parts in strict base64url. A lenient decoder would accept the same token in many spellings, with
 * whitespace, padding or unused bits.
 *
 * @see RFC 7515 section 5.2; RFC 4648 section 3.5
 */
const compactJws = new RegExp(`^${base64url}\\.${base64url}\\.${base64url}$`);

/** Reports whether a token has the form of a compact JWS. */
export const isCompactJws = (token: string): boolean => compactJws.test(token);

/**
 * Reads a compact JWS's protected header, before the signature is verified. Rejects unknown critical parameters and
 * algorithms that are not allowed.
 *
 * @throws TokenError `ERR_TOKEN_TOO_LARGE`, `ERR_TOKEN_MALFORMED`, `ERR_TOKEN_CRIT`, `ERR_TOKEN_ALG`
 * @see RFC 7515 section 5.2
 */
export function readHeader(
  token: string,
  algorithms: readonly string[],
  maxBytes: number = maxTokenBytes,
): JWTHeaderParameters {
  if (typeof token !== "string") throw malformed("the token is not a string");
  if (token.length > maxBytes) {
    throw new TokenError("ERR_TOKEN_TOO_LARGE", `the token is longer than ${maxBytes} bytes`);
  }
  if (!isCompactJws(token)) throw malformed(undefined, hintFor(token));
  const header = parse(token);
  if (header.crit !== undefined) checkCritical(header);
  if (typeof header.alg !== "string" || header.alg === "") throw malformed();
  if (!algorithms.includes(header.alg)) throw new TokenError("ERR_TOKEN_ALG", "the token's alg is not allowed");
  return header;
}

const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Returns the claims of a token whose header has been read.
 *
 * @throws TokenError `ERR_TOKEN_MALFORMED`
 * @see RFC 7519 section 7.2
 */
export function readClaims(token: string): JWTPayload {
  const payload = token.slice(token.indexOf(".") + 1, token.lastIndexOf("."));
  let claims: unknown;
  try {
    claims = JSON.parse(decoder.decode(base64.decode(payload)));
  } catch {
    throw malformed();
  }
  if (!object.holds(claims)) throw malformed();
  // A claim can have any type. The code that uses a claim checks it.
  return claims as JWTPayload;
}

export function malformed(message: string = "the token is not a well-formed signed JWT", hint?: string): TokenError {
  return new TokenError("ERR_TOKEN_MALFORMED", message, { hint });
}

/** Describes the string if it is one that is often sent by mistake instead of a signed JWT. */
function hintFor(token: string): string | undefined {
  if (token === "undefined" || token === "null") return `the client sent the word "${token}"`;
  const parts = token.split(".").length;
  if (parts === 5) return "it has five parts, like an encrypted token (JWE)";
  return parts === 1 ? "it is opaque, so only its provider can interpret it (introspection, RFC 7662)" : undefined;
}

function parse(token: string): JWTHeaderParameters {
  try {
    // The caller checks the alg next.
    return decodeProtectedHeader(token) as JWTHeaderParameters;
  } catch {
    throw malformed();
  }
}

/**
 * Rejects all critical extensions except `b64: true`, which has no effect, because claims are always in base64url.
 *
 * @see RFC 7515 section 4.1.11; RFC 7797 section 7
 */
function checkCritical({ crit, ...others }: JWTHeaderParameters): void {
  if (
    !Array.isArray(crit) ||
    crit.length === 0 ||
    crit.some((name: unknown) => typeof name !== "string" || name === "")
  )
    throw malformed();
  if (crit.some((name) => name !== "b64")) {
    throw new TokenError("ERR_TOKEN_CRIT", "the token has critical header parameters that are not understood");
  }
  if (others.b64 !== true) throw malformed();
}
