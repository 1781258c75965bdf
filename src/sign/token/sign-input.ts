import * as base64url from "jose/base64url";
import { invalidClaims } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import { type Optional, type Rules, anything, checkOptions, object } from "../../base/options.ts";
import { checkClaims } from "./check-claims.ts";
import { checkHeaderNames, checkMembersOnce } from "./check-names.ts";
import { type ActiveKey, signParts } from "./sign.ts";
import { checkLifetime, timesOf } from "./token-times.ts";

/** Options for `ActiveSigningKey.sign`. */
export interface SignInputOptions {
  /**
   * Lifetime of the token, in whole seconds. If the token has an `exp`, the `exp` must not be later than this lifetime
   * allows.
   */
  readonly lifetimeSeconds: number;
  /** Signal that aborts signing. Default: none. */
  readonly signal?: Optional<AbortSignal>;
}

const rules: Rules<SignInputOptions> = { lifetimeSeconds: anything, signal: anything };

type Json = Readonly<Record<string, unknown>>;

const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Signs the signing input of a JWT, which contains the caller's header and claims. Both must follow the rules of
 * `signToken`, and the header must name this key. Other input is not signed, because arbitrary bytes could be a token
 * of any kind.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @throws ConfigError `ERR_OPTION_UNKNOWN`
 * @throws SignerError, for the same reasons as `boundSigner`
 * @see RFC 7515 section 5.1
 */
export async function signInput(
  active: ActiveKey,
  issuer: string,
  input: Uint8Array,
  options: SignInputOptions,
  nowMs: number,
): Promise<Uint8Array> {
  const { lifetimeSeconds, signal } = checkOptions(options ?? ({} as SignInputOptions), rules);
  const { maxLifetimeSeconds } = active;
  checkLifetime(lifetimeSeconds, maxLifetimeSeconds);
  const [header, payload] = splitInput(input);
  const { alg, kid, typ: _typ, ...others } = jsonIn(header, "header");
  if (alg !== "ES256") throw invalidClaims('header "alg" must be "ES256"');
  if (kid !== active.kid)
    throw invalidClaims(`header "kid" must be ${JSON.stringify(active.kid)}, the kid of this key`);
  checkHeaderNames(others);
  const claims = jsonIn(payload, "payload");
  checkClaims(claims, issuer);
  const withoutExp = claims["exp"] === undefined;
  const { exp } = timesOf(claims, {
    lifetimeSeconds: withoutExp ? lifetimeSeconds : undefined,
    maxLifetimeSeconds,
    nowMs,
  });
  if (exp > Math.floor(nowMs / 1000) + lifetimeSeconds)
    throw invalidClaims(`claim "exp" is later than lifetimeSeconds allows (${lifetimeSeconds} seconds)`);
  return signParts(active, `${header}.${payload}`, signal);
}

/** Splits a signing input into header and payload, both in base64url. */
function splitInput(input: Uint8Array): readonly [header: string, payload: string] {
  const text = input instanceof Uint8Array ? new TextDecoder().decode(input) : "";
  const parts = /^([\w-]+)\.([\w-]+)$/.exec(text);
  if (parts !== null) return [parts[1] as string, parts[2] as string];
  throw invalidClaims("the input must be a JWT's signing input: header and payload in base64url, joined by a dot");
}

function jsonIn(part: string, name: string): Json {
  const text = decodedText(part);
  const value = text === undefined ? undefined : jsonOf(text);
  if (text === undefined || !object.holds(value)) throw invalidClaims(`the ${name} is not a JSON object`);
  checkMembersOnce(text, `the ${name}`);
  return value as Json;
}

/** Decodes a part of a token; returns `undefined` if it is not base64url-encoded UTF-8. */
function decodedText(part: string): string | undefined {
  try {
    return decoder.decode(base64url.decode(part));
  } catch {
    return undefined;
  }
}
