import { toBase64url } from "#crypto";
import type { Bytes } from "../../base/bytes.ts";
import { invalidClaims, invalidOption } from "../../base/errors.ts";
import type { BoundedSign } from "../../keys/signer/bounded.ts";
import { maxTokenBytes } from "../../verify/token/compact-jws.ts";
import { checkClaims } from "./claims.ts";
import { checkHeaderNames } from "./names.ts";
import { type Claims, type SignOptions, checkedOptions } from "./sign-options.ts";
import { timesOf } from "./times.ts";

/** The signing key. Kid and signer are one object, so that a rotation cannot mix them up. */
export interface ActiveKey {
  readonly kid: string;
  /** `Infinity` for no limit. */
  readonly maxLifetimeSeconds: number;
  readonly sign: BoundedSign;
  /** Encoded headers without extra parameters, by typ; `signToken` fills it. */
  readonly headers: Map<string, string>;
}

/** What stands before and after a payload in a token, in base64url. */
export interface SignedPayload {
  readonly header: string;
  readonly signature: string;
}

/** Bounds the memory where a caller takes `typ` from outside. */
const maxHeaders = 16;
/** Reports whether the `typ` is that of access tokens, which must have a `jti`. @see RFC 9068 sections 2.1 and 2.2; RFC 7515 section 4.1.9 */
const isAccessToken = (typ: string): boolean => /^(application\/)?at\+jwt$/i.test(typ);
/** 64 bytes in base64url. */
const signatureLength = 86;
const encoder = new TextEncoder();

/**
 * Signs claims as a compact JWS with ES256.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @throws ConfigError `ERR_OPTION_UNKNOWN`; `ERR_OPTION_INVALID` when the clock gives no time
 * @throws SignerError see `boundSigner`
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
  if (!Number.isFinite(nowMs)) throw invalidOption('"clock" does not tell the time');
  const times = timesOf(claims, { lifetimeSeconds, maxLifetimeSeconds: active.maxLifetimeSeconds, nowMs });
  const protectedHeader = encodedHeader(active, typ, header);
  const jti = claims["jti"] ?? (isAccessToken(typ) ? crypto.randomUUID() : undefined);
  const payload = encode({ ...claims, iss: issuer, ...times, jti });
  const input = `${protectedHeader}.${payload}`;
  return `${input}.${toBase64url(await signParts(active, input, signal))}`;
}

/**
 * Signs a payload as it is, under a header of `alg`, `kid` and the `typ` JWT. Its claims are the caller's to check.
 *
 * @param payload in base64url, as it is in the token
 * @throws TokenError `ERR_CLAIMS_INVALID` where the token would be too long
 * @throws SignerError see `boundSigner`
 */
export async function signPayload(active: ActiveKey, payload: string): Promise<SignedPayload> {
  const header = encodedHeader(active, "JWT", {});
  return { header, signature: toBase64url(await signParts(active, `${header}.${payload}`)) };
}

/** The signature over header and payload in base64url. */
export async function signParts(active: ActiveKey, signingInput: string, signal?: AbortSignal): Promise<Bytes> {
  if (signingInput.length + 1 + signatureLength > maxTokenBytes)
    throw invalidClaims(`the token would be longer than the ${maxTokenBytes} bytes that verify takes`);
  return active.sign(encoder.encode(signingInput), signal);
}

/** The encoded header, which is made once per key and typ. */
function encodedHeader({ kid, headers }: ActiveKey, typ: string, more: object): string {
  const isUsual = Object.keys(more).length === 0;
  const known = isUsual ? headers.get(typ) : undefined;
  if (known !== undefined) return known;
  const encoded = encode({ ...more, alg: "ES256", kid, typ });
  if (isUsual && headers.size < maxHeaders) headers.set(typ, encoded);
  return encoded;
}

/** A part of a token. @throws TokenError `ERR_CLAIMS_INVALID` */
export function encode(value: object, what: string = "claims and header"): string {
  try {
    return toBase64url(JSON.stringify(value));
  } catch (cause) {
    throw invalidClaims(`${what} must be what JSON can hold`, { cause });
  }
}
