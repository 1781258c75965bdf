import { toBase64url } from "#crypto";
import type { Bytes } from "../../base/bytes.ts";
import { invalidClaims, invalidOption } from "../../base/errors.ts";
import type { BoundedSign } from "../../keys/signer/bounded-signer.ts";
import { maxTokenBytes } from "../../verify/token/compact-jws.ts";
import { checkClaims } from "./check-claims.ts";
import { checkHeaderNames } from "./check-names.ts";
import { type Claims, type SignOptions, checkedOptions } from "./sign-options.ts";
import { timesOf } from "./token-times.ts";

/** The signing key. The kid and the signer are kept in one object, so that a rotation cannot mix them up. */
export interface ActiveKey {
  readonly kid: string;
  /** Maximum token lifetime, in seconds. `Infinity` means no limit. */
  readonly maxLifetimeSeconds: number;
  readonly sign: BoundedSign;
  /** Encoded headers without additional parameters, keyed by typ. `signToken` fills the map. */
  readonly headers: Map<string, string>;
}

/** The parts of a token before and after its payload, in base64url. */
export interface SignedPayload {
  readonly header: string;
  readonly signature: string;
}

/** Maximum number of cached headers. The limit is needed because a caller may use an external value as `typ`. */
const maxHeaders = 16;
/**
 * Reports whether a `typ` denotes an access token, which must have a `jti`.
 *
 * @see RFC 9068 sections 2.1 and 2.2; RFC 7515 section 4.1.9
 */
const isAccessToken = (typ: string): boolean => /^(application\/)?at\+jwt$/i.test(typ);
/** Length of a signature (64 bytes) in base64url. */
const signatureLength = 86;
const encoder = new TextEncoder();

/**
 * Signs claims as a compact JWS with ES256.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @throws ConfigError `ERR_OPTION_UNKNOWN`; `ERR_OPTION_INVALID` if the clock returns no time
 * @throws SignerError, for the same reasons as `boundSigner`
 * @see RFC 7515 section 7.1; RFC 7519 section 4.1
 */
export async function signToken(
  active: ActiveKey,
  issuer: string,
  claims: Claims,
  options: SignOptions,
  nowMs: number,
): Promise<string> {
  const { typ, header, lifetimeSeconds, signal } = checkedOptions(claims, options);
  checkHeaderNames(header);
  checkClaims(claims, issuer);
  if (!Number.isFinite(nowMs)) throw invalidOption('"clock" must return the time in epoch milliseconds');
  const times = timesOf(claims, { lifetimeSeconds, maxLifetimeSeconds: active.maxLifetimeSeconds, nowMs });
  const protectedHeader = encodedHeader(active, typ, header);
  const jti = claims["jti"] ?? (isAccessToken(typ) ? crypto.randomUUID() : undefined);
  const payload = encode({ ...claims, iss: issuer, ...times, jti });
  const input = `${protectedHeader}.${payload}`;
  return `${input}.${toBase64url(await signParts(active, input, signal))}`;
}

/**
 * Signs a payload as is, with a header that contains `alg`, `kid` and a `typ` of JWT. The caller must check the claims.
 *
 * @param payload the payload in base64url
 * @throws TokenError `ERR_CLAIMS_INVALID` if the token would be too long
 * @throws SignerError, for the same reasons as `boundSigner`
 */
export async function signPayload(active: ActiveKey, payload: string): Promise<SignedPayload> {
  const header = encodedHeader(active, "JWT", {});
  return { header, signature: toBase64url(await signParts(active, `${header}.${payload}`)) };
}

/** Signs a header and a payload, which are already in base64url. */
export async function signParts(active: ActiveKey, signingInput: string, signal?: AbortSignal): Promise<Bytes> {
  if (signingInput.length + 1 + signatureLength > maxTokenBytes)
    throw invalidClaims(`the token would be longer than ${maxTokenBytes} bytes, the maximum that verifiers accept`);
  return active.sign(encoder.encode(signingInput), signal);
}

/** Returns the encoded header. It is created only once per key and typ. */
function encodedHeader({ kid, headers }: ActiveKey, typ: string, more: object): string {
  const isCacheable = Object.keys(more).length === 0;
  const known = isCacheable ? headers.get(typ) : undefined;
  if (known !== undefined) return known;
  const encoded = encode({ ...more, alg: "ES256", kid, typ });
  if (isCacheable && headers.size < maxHeaders) headers.set(typ, encoded);
  return encoded;
}

/** Encodes a part of a token. @throws TokenError `ERR_CLAIMS_INVALID` */
export function encode(value: object, name: string = "claims and header"): string {
  try {
    return toBase64url(JSON.stringify(value));
  } catch (cause) {
    throw invalidClaims(`${name} must be serializable as JSON`, { cause });
  }
}
