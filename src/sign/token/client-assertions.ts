import { encode as toBase64url } from "jose/base64url";
import { type Clock, systemClock } from "../../base/clock.ts";
import { invalidClaims } from "../../base/errors.ts";
import {
  type Optional,
  type Given,
  type Rules,
  anything,
  checkOptions,
  clock,
  object,
  required,
  nonEmptyString,
  wholeNumber,
} from "../../base/options.ts";
import type { SignInputOptions } from "./sign-input.ts";
import { checkPlain } from "./sign-options.ts";
import { encode } from "./sign.ts";

/** The source of a client's signing key, such as a provider. */
export interface ClientSigner {
  signingKey(
    this: void,
    options: { readonly clientId: string },
  ): Promise<{
    readonly kid: string;
    sign(this: void, input: Uint8Array, options: SignInputOptions): Promise<Uint8Array>;
  }>;
}

/** Options for `createClientAssertion`. */
export interface ClientAssertionOptions {
  /**
   * Client ID. It becomes `iss`, and also `sub` in an assertion or `client_id` in a request object. For a client with a
   * client ID metadata document, it is the document's URL.
   */
  readonly clientId: string;
  /** The authorization server's issuer identifier, not the URL of one of its endpoints. */
  readonly audience: string;
  /** Time from now to `exp`, at most 300 seconds. Default: 60. */
  readonly lifetimeSeconds?: Optional<number>;
  /** Signal that aborts signing. Default: none. */
  readonly signal?: Optional<AbortSignal>;
  /** Source of the current time. Default: the machine's clock. */
  readonly clock?: Optional<Pick<Clock, "now">>;
}

/** Options for `createRequestObject`. */
export interface RequestObjectOptions extends ClientAssertionOptions {
  /** Parameters of the authorization request, such as `redirect_uri` and `scope`. */
  readonly parameters: Readonly<Record<string, unknown>>;
}

const rules: Rules<ClientAssertionOptions> = {
  clientId: required(nonEmptyString),
  audience: required(nonEmptyString),
  lifetimeSeconds: wholeNumber(1, 300),
  signal: anything,
  clock: { ...clock, must: "an object with a now method", holds: (value): value is object => hasNow(value) },
};

const hasNow = (value: unknown): boolean => typeof (value as Partial<Clock>).now === "function";

/**
 * Creates an assertion that authenticates a client (`private_key_jwt`). Create a new assertion for each request,
 * because an authorization server accepts each one only once. A client must have its own keys, not a provider's.
 *
 * @example
 * ```ts
 * const assertion = await createClientAssertion(keys, { clientId, audience: "https://as.example" });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @throws SignerError, for the same reasons as `Provider.signingKey`
 * @see RFC 7523 section 3; draft-ietf-oauth-rfc7523bis section 4; OpenID Connect Core 1.0 section 9
 */
export async function createClientAssertion(signer: ClientSigner, options: ClientAssertionOptions): Promise<string> {
  const given = checkOptions(options, rules);
  return sign(signer, given, "client-authentication+jwt", { sub: given.clientId });
}

/**
 * Creates a request object (JAR), which contains the signed parameters of one authorization request.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @throws TokenError `ERR_CLAIMS_INVALID` if a parameter is one that this function sets itself or that a request object
 * must not contain
 * @throws SignerError, for the same reasons as `Provider.signingKey`
 * @see RFC 9101 sections 4 and 10.8; FAPI 2.0 Message Signing section 5.3.1
 */
export async function createRequestObject(signer: ClientSigner, options: RequestObjectOptions): Promise<string> {
  const { parameters, ...given } = checkOptions(options, { ...rules, parameters: required(object) });
  checkPlain("parameters", parameters);
  const reserved = ["iss", "sub", "aud", "client_id", "iat", "nbf", "exp", "jti", "request", "request_uri"];
  const wrong = reserved.find((name) => parameters[name] !== undefined);
  if (wrong !== undefined) throw invalidClaims(`parameter "${wrong}" must not be set by the caller; remove it`);
  return sign(signer, given, "oauth-authz-req+jwt", { ...parameters, client_id: given.clientId });
}

async function sign(
  signer: ClientSigner,
  { clientId, audience, lifetimeSeconds = 60, signal, clock = systemClock }: Given<ClientAssertionOptions>,
  typ: string,
  claims: Readonly<Record<string, unknown>>,
): Promise<string> {
  const { kid, sign } = await signer.signingKey({ clientId });
  const iat = Math.floor(clock.now() / 1000);
  const times = { iat, nbf: iat, exp: iat + lifetimeSeconds };
  const payload = { ...claims, iss: clientId, aud: audience, ...times, jti: crypto.randomUUID() };
  const input = `${encode({ alg: "ES256", kid, typ })}.${encode(payload, "parameters")}`;
  const signature = await sign(new TextEncoder().encode(input), { lifetimeSeconds, signal });
  return `${input}.${toBase64url(signature)}`;
}
