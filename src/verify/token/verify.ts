import type { CryptoKey, JWSHeaderParameters, JWTHeaderParameters, JWTPayload } from "jose";
import * as base64url from "jose/base64url";
import { verify as verifySignature } from "#crypto";
import type { Bytes } from "../../base/bytes.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { TokenError, invalidOption } from "../../base/errors.ts";
import {
  type Optional,
  type Given,
  type Rule,
  type Rules,
  withMethods,
  callback,
  checkOptions,
  clockTolerance,
  required,
  nonEmptyString,
  strings,
} from "../../base/options.ts";
import { isPublicKeyAlgorithm } from "../../keys/crypto/algorithms.ts";
import { isCryptoKey } from "../../keys/jwk/read-key.ts";
import { readClaims, readHeader } from "./compact-jws.ts";
import { checkTyp } from "./typ-header.ts";

/**
 * Finds the public key for a token's header, like the function that `createRemoteKeySet` returns. For an unknown kid,
 * it throws or returns `undefined`. It never returns a different kid's key.
 */
export type KeyResolver = (header: JWSHeaderParameters) => CryptoKey | undefined | Promise<CryptoKey | undefined>;

/** Options for `verify`. */
export interface VerifyOptions {
  /** Finds the token's key. */
  readonly keys: KeyResolver;
  /** Accepted `iss`, or a list of accepted values. */
  readonly issuer: string | readonly string[];
  /**
   * Accepted `aud`, or a list of accepted values. If a token has several audiences, at least one of them must be an
   * accepted value.
   */
  readonly audience: string | readonly string[];
  /**
   * Accepted `alg` values from RFC 7518 and RFC 8037. Only public-key algorithms are allowed, not `none` or HMAC.
   */
  readonly algorithms: readonly string[];
  /** Expected `typ` header, compared as a media type. Default: not checked. @see RFC 8725 section 3.11 */
  readonly typ?: Optional<string>;
  /** Allowed clock difference, in seconds, at most 300. Default: 0. */
  readonly clockToleranceSeconds?: Optional<number>;
  /** Claims that a token must have besides `iss`, `aud` and `exp`. Default: none. */
  readonly requiredClaims?: Optional<readonly string[]>;
  /** Source of the current time. Default: the machine's clock. */
  readonly clock?: Optional<Pick<Clock, "now">>;
}

/** The claims of a token that has an issuer and an expiry. */
export type VerifiedClaims = JWTPayload & { readonly iss: string; readonly exp: number };

/** An accepted token. */
export interface VerifiedToken {
  /** Protected header. */
  readonly header: JWTHeaderParameters;
  /** The token's claims, all of which are covered by the signature. */
  readonly claims: VerifiedClaims;
}

const encoder = new TextEncoder();
const oneOrMoreTexts: Rule = {
  must: "a non-empty string, or an array of non-empty strings",
  types: ["string", "array"],
  holds: (value): value is unknown => nonEmptyString.holds(value) || (strings.holds(value) && value.length > 0),
};
const verifyRules: Rules<VerifyOptions> = {
  keys: required({
    ...callback,
    must: "a function that returns the key for a token's header, such as the result of createRemoteKeySet",
  }),
  issuer: required(oneOrMoreTexts),
  audience: required(oneOrMoreTexts),
  algorithms: required({
    must: "an array of algorithms",
    types: ["array"],
    holds: (value): value is unknown => strings.holds(value) && value.length > 0,
  }),
  typ: nonEmptyString,
  clockToleranceSeconds: clockTolerance,
  requiredClaims: strings,
  clock: withMethods("now"),
};

/**
 * Verifies a signed token. Checks its size and header, finds the key with its kid, then checks the signature and the
 * claims. Ignores keys in the token's header (`jwk`, `jku`, `x5u`, `x5c`).
 *
 * @example
 * ```ts
 * const keys = createRemoteKeySet({ issuer });
 * const { claims } = await verify(token, { keys, issuer, audience: "my-api", algorithms: ["ES256"], typ: "at+jwt" });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` (including if `keys` does not return a public key or
 * `clock` does not return a time)
 * @throws TokenError `ERR_TOKEN_TOO_LARGE`, `ERR_TOKEN_MALFORMED`, `ERR_TOKEN_ALG`, `ERR_TOKEN_CRIT`, `ERR_TOKEN_TYP`,
 * `ERR_TOKEN_KID_MISSING`, `ERR_TOKEN_KID_UNKNOWN`, `ERR_TOKEN_SIGNATURE`, `ERR_TOKEN_EXPIRED`, `ERR_TOKEN_CLAIM`
 * @throws any error that `keys` throws
 * @see RFC 7519 section 7.2; RFC 8725
 */
export async function verify(token: string, options: VerifyOptions): Promise<VerifiedToken> {
  const given = checkVerifyOptions(options);
  const header = readHeader(token, given.algorithms);
  return verifyRead({ token, header, claims: () => readClaims(token) }, given);
}

/** A token whose header has been read but which has not been verified. */
export interface ReadToken {
  readonly token: string;
  readonly header: JWTHeaderParameters;
  readonly claims: () => JWTPayload;
}

/** Checked options, and the claim that names the audience (by default, `aud`). */
type CheckedOptions = Given<VerifyOptions> & { readonly audienceClaim?: string | undefined };

/** Verifies a token whose header has been read, with checked options. See `verify`. */
export async function verifyRead(read: ReadToken, given: CheckedOptions): Promise<VerifiedToken> {
  const { token, header } = read;
  const { keys, clock = systemClock } = given;
  if (typeof header.kid !== "string" || header.kid === "") {
    throw new TokenError("ERR_TOKEN_KID_MISSING", "the token's header has no kid");
  }
  await checkSignature(token, header.alg, publicKey(await keys(header)));
  const claims = read.claims();
  if (given.typ !== undefined) checkTyp(header, { typ: given.typ });
  // The time is read last, because a token may expire while its key is being fetched.
  checkClaims(claims, given, secondsOf(clock));
  return { header, claims };
}

/**
 * Checks the options before the first token is verified.
 *
 * @throws ConfigError, for the same reasons as `verify`
 */
export function checkVerifyOptions(options: VerifyOptions): Given<VerifyOptions> {
  const given = checkOptions(options, verifyRules);
  const unsuitable = given.algorithms.find((alg) => !isPublicKeyAlgorithm(alg));
  if (unsuitable === undefined) return given;
  throw invalidOption(`${JSON.stringify(unsuitable)} is not a public-key algorithm`);
}

/** Checks and returns the result of `keys`. */
function publicKey(key: CryptoKey | null | undefined): CryptoKey {
  if (key === undefined || key === null) throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "no key has the token's kid");
  if (key.type !== "public" || !isCryptoKey(key)) throw invalidOption('"keys" did not return a public key');
  return key;
}

/**
 * Returns the current time in seconds, after checking that it is valid, because with NaN no token would ever expire.
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
function secondsOf(clock: Pick<Clock, "now">): number {
  const now: unknown = clock.now();
  if (typeof now === "number" && !Number.isNaN(new Date(now).getTime())) return Math.floor(now / 1000);
  throw invalidOption('the now() method of "clock" must return the milliseconds since 1970');
}

/** Checks a token's signature. @throws TokenError `ERR_TOKEN_SIGNATURE`, `ERR_TOKEN_ALG` */
export async function checkSignature(token: string, alg: string, key: CryptoKey): Promise<void> {
  const end = token.lastIndexOf(".");
  const input = encoder.encode(token.slice(0, end));
  // jose's type does not say that the bytes are in an ArrayBuffer.
  const signature = base64url.decode(token.slice(end + 1)) as Bytes;
  let isValid: boolean;
  try {
    isValid = await verifySignature(key, alg, input, signature);
  } catch (cause) {
    const message = "the token's alg does not match the alg of its key";
    throw new TokenError("ERR_TOKEN_ALG", message, { cause });
  }
  if (!isValid) throw new TokenError("ERR_TOKEN_SIGNATURE", "the signature is not valid for the token and its key");
}

/**
 * Checks the claims in a token whose signature has been verified.
 *
 * @throws TokenError `ERR_TOKEN_CLAIM`, `ERR_TOKEN_EXPIRED`
 * @see RFC 7519 section 4.1
 */
function checkClaims(claims: JWTPayload, given: CheckedOptions, now: number): asserts claims is VerifiedClaims {
  const { clockToleranceSeconds = 0, requiredClaims = [], audienceClaim = "aud" } = given;
  const audience = [given.audience].flat();
  const expected: Record<string, readonly string[]> = { iss: [given.issuer].flat(), [audienceClaim]: audience };
  // If the token has an aud, it is checked too, because a different claim must not hide that the token is for a
  // different API.
  if (Object.hasOwn(claims, "aud")) expected["aud"] = audience;
  for (const name of [...Object.keys(expected), ...requiredClaims, "exp"])
    if (!Object.hasOwn(claims, name)) throw wrongClaim(name, "is missing", expected);
  for (const [name, known] of Object.entries(expected)) {
    const values = name === "iss" ? [claims.iss] : [claims[name]].flat();
    if (!values.some((value) => known.some((one) => one === value)))
      throw wrongClaim(name, "does not have the expected value", expected);
  }
  for (const name of ["exp", "nbf", "iat"]) {
    const value: unknown = claims[name] === undefined ? now : claims[name];
    if (typeof value !== "number") throw wrongClaim(name, "does not have the expected value");
    // JSON.parse turns 1e400 into `Infinity`, and a token with that `exp` would never expire.
    if (!Number.isFinite(value)) throw wrongClaim(name, "is not a finite number");
  }
  const { exp = now, nbf = now } = claims;
  if (nbf > now + clockToleranceSeconds) throw wrongClaim("nbf", "does not have the expected value");
  if (exp <= now - clockToleranceSeconds) throw new TokenError("ERR_TOKEN_EXPIRED", "the token has expired");
}

function wrongClaim(name: string, what: string, expected: Record<string, readonly string[]> = {}): TokenError {
  const names = Object.hasOwn(expected, name) ? expected[name] : undefined;
  const hint = names && `expected ${names.map((name) => JSON.stringify(name)).join(" or ")}`;
  return new TokenError("ERR_TOKEN_CLAIM", `claim "${name}" ${what}`, { hint });
}
