import * as base64url from "jose/base64url";
import { invalidClaims } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import { type Optional, type Rules, anything, checkOptions, object } from "../../base/options.ts";
import { checkClaims } from "./claims.ts";
import { checkHeaderNames, checkMembersOnce } from "./names.ts";
import { type ActiveKey, signParts } from "./sign.ts";
import { checkLifetime, timesOf } from "./times.ts";

/** Options of `SigningKey.sign`. */
export interface SignInputOptions {
  /** For how long the token may be used, in whole seconds; its `exp`, if it has one, may be no later. */
  readonly lifetimeSeconds: number;
  /** Aborts the signature. Default: none. */
  readonly signal?: Optional<AbortSignal>;
}

const rules: Rules<SignInputOptions> = { lifetimeSeconds: anything, signal: anything };

type Json = Readonly<Record<string, unknown>>;

const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Signs the signing input of a JWT whose header and claims its caller has written, and holds both to the rules of `signToken`. The header
 * must name this key. Anything else is not signed: a signature over bytes of somebody's choice could be a token of any kind.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @throws ConfigError `ERR_OPTION_UNKNOWN`
 * @throws SignerError see `boundSigner`
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
  const [header, payload] = partsOf(input);
  const { alg, kid, typ: _typ, ...others } = jsonIn(header, "header");
  if (alg !== "ES256") throw invalidClaims("the alg of the header is not ES256");
  if (kid !== active.kid)
    throw invalidClaims(`the kid of the header is not ${JSON.stringify(active.kid)}, the kid of this key`);
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
    throw invalidClaims(`claim "exp" is further ahead than the ${lifetimeSeconds} seconds of lifetimeSeconds`);
  return signParts(active, `${header}.${payload}`, signal);
}

/** Header and payload in base64url. */
function partsOf(input: Uint8Array): readonly [header: string, payload: string] {
  const text = input instanceof Uint8Array ? new TextDecoder().decode(input) : "";
  const parts = /^([\w-]+)\.([\w-]+)$/.exec(text);
  if (parts !== null) return [parts[1] as string, parts[2] as string];
  throw invalidClaims(
    "only the signing input of a JWT is signed: header and payload in base64url, and a dot between them",
  );
}

function jsonIn(part: string, name: string): Json {
  const text = textOf(part);
  const value = text === undefined ? undefined : jsonOf(text);
  if (text === undefined || !object.holds(value)) throw invalidClaims(`the ${name} is no JSON object`);
  checkMembersOnce(text, `the ${name}`);
  return value as Json;
}

/** `undefined` for what is not base64url of UTF-8. */
function textOf(part: string): string | undefined {
  try {
    return decoder.decode(base64url.decode(part));
  } catch {
    return undefined;
  }
}
