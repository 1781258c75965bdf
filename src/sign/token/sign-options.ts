import { ConfigError, invalidClaims } from "../../base/errors.ts";
import { type Optional, type Rules, anything, checkOptions } from "../../base/options.ts";

/** Options for `sign`. */
export interface SignOptions {
  /** Time from now to `exp`, in whole seconds. Required unless the claims include `exp`. */
  readonly lifetimeSeconds?: Optional<number>;
  /** Type in the `typ` header: `at+jwt` for access tokens (RFC 9068 section 2.1). Default: `JWT`. */
  readonly typ?: Optional<string>;
  /** Additional protected header parameters, except `alg`, `kid`, `typ`, keys and certificates. Default: none. */
  readonly header?: Optional<Readonly<Record<string, unknown>>>;
  /** Signal that aborts signing. Default: none. */
  readonly signal?: Optional<AbortSignal>;
}

/**
 * The claims of a token. `sign` sets `iss`, `iat` and `exp` if they are not given; if `typ` is `at+jwt`, it also sets a
 * random `jti`. `iss` must be the issuer, `iat` must be at most a minute in the future, `exp` must be at most
 * `maxTokenLifetimeSeconds` in the future, and `nbf` must be before `exp`. `sub` and `jti` are strings, `aud` is a
 * string or an array of strings, and `auth_time` is a number.
 */
export type Claims = Readonly<Record<string, unknown>>;

/** Rules that accept any value. The values are checked below, because an invalid value must cause a TokenError. */
const rules: Rules<SignOptions> = { lifetimeSeconds: anything, typ: anything, header: anything, signal: anything };

/** Advice for each option that other libraries have, keyed by option name. */
const replacements: Readonly<Record<string, string>> = {
  expiresIn: 'use "lifetimeSeconds", in whole seconds',
  audience: 'set the "aud" claim',
  aud: 'set the "aud" claim',
  subject: 'set the "sub" claim',
  sub: 'set the "sub" claim',
  jwtid: 'set the "jti" claim',
  jti: 'set the "jti" claim',
  notBefore: 'set the "nbf" claim',
  issuer: 'the provider sets the "iss" claim',
  algorithm: 'the provider sets the "alg" header',
  alg: 'the provider sets the "alg" header',
  keyid: 'the provider sets the "kid" header',
  kid: 'the provider sets the "kid" header',
};

/**
 * Fills in the defaults for a token's options. Checks that the claims and the header are plain objects.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @throws ConfigError `ERR_OPTION_UNKNOWN`
 */
export function checkedOptions(claims: Claims, options: SignOptions | undefined) {
  const foreign = Object.keys(options ?? {}).find((name) => Object.hasOwn(replacements, name));
  if (foreign !== undefined)
    throw new ConfigError("ERR_OPTION_UNKNOWN", `there is no "${foreign}" option; ${replacements[foreign]}`);
  const { typ = "JWT", header = {}, lifetimeSeconds, signal } = checkOptions<SignOptions>(options ?? {}, rules);
  for (const [name, value] of Object.entries({ claims, header })) checkPlain(name, value);
  if (typeof typ !== "string" || typ === "") throw invalidClaims("typ must be a non-empty string");
  if (signal !== undefined && typeof signal?.addEventListener !== "function")
    throw invalidClaims("signal must be an AbortSignal");
  return { typ, header, lifetimeSeconds, signal };
}

/** Rejects a value that would become a different object in JSON. @throws TokenError `ERR_CLAIMS_INVALID` */
export function checkPlain(name: string, value: unknown): void {
  // A Map, an Error or a Promise becomes an empty object in JSON.
  if (!isPlainObject(value)) throw invalidClaims(`${name} must be a plain object`);
  // toJSON() could replace the members that jwksd sets: iss and exp, or alg and kid.
  if (typeof (value as { toJSON?: unknown }).toJSON === "function")
    throw invalidClaims(`${name} must be plain data, without toJSON()`);
}

function isPlainObject(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  // Another realm's Object.prototype is accepted too.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
