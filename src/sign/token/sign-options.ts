import { ConfigError, invalidClaims } from "../../base/errors.ts";
import { type Optional, type Rules, anything, checkOptions } from "../../base/options.ts";

/** Options of `sign`. */
export interface SignOptions {
  /** Time from now to `exp`, in whole seconds. Required, unless the claims have `exp`. */
  readonly lifetimeSeconds?: Optional<number>;
  /** Header `typ`: `at+jwt` for access tokens (RFC 9068 section 2.1). Default: `JWT`. */
  readonly typ?: Optional<string>;
  /** More protected header parameters, without `alg`, `kid`, `typ`, keys and certificates. Default: none. */
  readonly header?: Optional<Readonly<Record<string, unknown>>>;
  /** Aborts the signature. Default: none. */
  readonly signal?: Optional<AbortSignal>;
}

/**
 * The claims of a token. `sign` sets `iss`, `iat` and `exp` if they are not given, and, for the `typ` `at+jwt`, a random `jti`. `iss` can only be
 * the issuer, `iat` at most a minute ahead, `exp` at most `maxTokenLifetimeSeconds` ahead, and `nbf` before `exp`. `sub`, `aud` and `jti` are
 * strings, `auth_time` is a number.
 */
export type Claims = Readonly<Record<string, unknown>>;

/** The values are checked below, because what is wrong about a token is a TokenError. */
const rules: Rules<SignOptions> = { lifetimeSeconds: anything, typ: anything, header: anything, signal: anything };

/** What to use instead of the options of other libraries. */
const instead: Readonly<Record<string, string>> = {
  expiresIn: 'use "lifetimeSeconds", in whole seconds',
  audience: 'set the claim "aud"',
  aud: 'set the claim "aud"',
  subject: 'set the claim "sub"',
  sub: 'set the claim "sub"',
  jwtid: 'set the claim "jti"',
  jti: 'set the claim "jti"',
  notBefore: 'set the claim "nbf"',
  issuer: 'the provider sets the claim "iss"',
  algorithm: 'the provider sets the header "alg"',
  alg: 'the provider sets the header "alg"',
  keyid: 'the provider sets the header "kid"',
  kid: 'the provider sets the header "kid"',
};

/**
 * The options of a token, with their defaults. Checks also that the claims are plain.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @throws ConfigError `ERR_OPTION_UNKNOWN`
 */
export function checkedOptions(claims: Claims, options: SignOptions | undefined) {
  const foreign = Object.keys(options ?? {}).find((name) => Object.hasOwn(instead, name));
  if (foreign !== undefined)
    throw new ConfigError("ERR_OPTION_UNKNOWN", `there is no option "${foreign}"; ${instead[foreign]}`);
  const { typ = "JWT", header = {}, lifetimeSeconds, signal } = checkOptions<SignOptions>(options ?? {}, rules);
  for (const [name, value] of Object.entries({ claims, header })) checkPlain(name, value);
  if (typeof typ !== "string" || typ === "") throw invalidClaims("typ must be a string that is not empty");
  if (signal !== undefined && typeof signal?.addEventListener !== "function")
    throw invalidClaims("signal must be an AbortSignal");
  return { typ, header, lifetimeSeconds, signal };
}

/** @throws TokenError `ERR_CLAIMS_INVALID` for what would be another object in JSON */
export function checkPlain(name: string, value: unknown): void {
  // The JSON of a Map, an Error or a Promise is an empty object.
  if (!isPlainObject(value)) throw invalidClaims(`${name} must be a plain object`);
  // toJSON() could replace what is set here: iss and exp, or alg and kid.
  if (typeof (value as { toJSON?: unknown }).toJSON === "function")
    throw invalidClaims(`${name} must be plain data, without toJSON()`);
}

function isPlainObject(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  // Object.prototype of another realm counts as well.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
