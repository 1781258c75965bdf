import { base64url } from "jose";
import { checkBounds } from "../bounds.ts";
import { type Clock, systemClock } from "../clock.ts";
import { ConfigError, TokenError } from "../errors.ts";
import { type OptionTypes, checkMethods, checkOptionTypes } from "../option-types.ts";
import type { Fetch } from "../relying-party/fetch-json.ts";
import { clientAlgorithms } from "../token/client-algorithms.ts";
import { type VerifiedToken, type VerifyOptions, verify } from "../token/verify.ts";
import { type Client, createClientKeys } from "./client-keys.ts";
import { type ReplayStore, memoryReplayStore } from "./replay.ts";

/** Options of `createClientVerifier`. */
export interface ClientVerifierOptions {
  /** Issuer identifier of the provider; every token must be meant for it, or for one of `audiences`. */
  readonly issuer: string;
  /** Other names of the provider that clients use as `aud`, such as the URL of the token endpoint. Default: none. */
  readonly audiences?: readonly string[] | undefined;
  /** Gets the `jwks_uri` of clients, guarded: `guardedFetch` of `jwksd/node`. Default: clients with a `jwks_uri` are refused. */
  readonly fetch?: Fetch | undefined;
  /** Default: in the memory of this process, at most 100,000 tokens, of one client at most as many as there is room for more. */
  readonly replay?: ReplayStore | undefined;
  /** How far `exp` may lie ahead, in seconds. Default: 3600. */
  readonly maxLifetimeSeconds?: number | undefined;
  /** Default: 0. */
  readonly clockToleranceSeconds?: number | undefined;
  readonly clock?: Clock | undefined;
}

const optionTypes: OptionTypes<ClientVerifierOptions> = {
  issuer: "string",
  audiences: "array",
  fetch: "function",
  replay: "object",
  maxLifetimeSeconds: "number",
  clockToleranceSeconds: "number",
  clock: "object",
};

/** Verifies what clients sign. */
export interface ClientVerifier {
  /**
   * Verifies a client assertion (`private_key_jwt`): `iss` and `sub` are the client, `aud` is the provider, `exp` is near, and
   * `jti` was not used before.
   *
   * @throws TokenError see `verify`, and `ERR_TOKEN_REPLAYED`, `ERR_REPLAY_FULL`
   * @throws FetchError when the keys of the client cannot be had now
   * @throws KeyMaterialError `ERR_KEY_FORMAT` when the `jwks` of the client is no JWK Set
   * @throws ConfigError `ERR_OPTION_INVALID` when the client has no id or no keys, or a `jwksUri` that nothing can fetch
   * @see RFC 7523 section 3; OpenID Connect Core 1.0 section 9
   */
  clientAssertion(this: void, assertion: string, client: Client): Promise<VerifiedToken>;
  /**
   * Verifies a request object (JAR): `iss` and `client_id` are the client, `aud` is the provider, `exp` is near, `sub` is not the
   * client (that would make it a client assertion), `request` and `request_uri` are not in it, and a `jti` was not used before.
   *
   * @throws TokenError see `verify`, and `ERR_TOKEN_REPLAYED`, `ERR_REPLAY_FULL`
   * @throws FetchError when the keys of the client cannot be had now
   * @throws KeyMaterialError `ERR_KEY_FORMAT` when the `jwks` of the client is no JWK Set
   * @throws ConfigError `ERR_OPTION_INVALID` when the client has no id or no keys, or a `jwksUri` that nothing can fetch
   * @see RFC 9101 sections 4, 6 and 10.8
   */
  requestObject(this: void, requestObject: string, client: Client): Promise<VerifiedToken>;
}

/**
 * Makes a verifier for client assertions and request objects. Algorithms are RS256, PS256, ES256 and EdDSA, and nothing else.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @see the contract, section 2 rule 5
 */
export function createClientVerifier(options: ClientVerifierOptions): ClientVerifier {
  checkOptionTypes(options, optionTypes);
  checkMethods("clock", options.clock, ["now", "setTimer"]);
  checkMethods("replay", options.replay, ["use"]);
  const { issuer, audiences = [], maxLifetimeSeconds = 3_600, clockToleranceSeconds = 0 } = options;
  const clock = options.clock ?? systemClock;
  // A text would be spread into its letters.
  const audience: string[] = [issuer, ...(Array.isArray(audiences) ? audiences : [""])];
  if (audience.some((name) => typeof name !== "string" || name === "")) {
    throw new ConfigError(
      "ERR_OPTION_INVALID",
      "issuer must be a string, audiences a list of strings, none of them empty",
    );
  }
  checkBounds({ maxLifetimeSeconds }, 1);
  checkBounds({ clockToleranceSeconds }, 0);
  const replay = options.replay ?? memoryReplayStore({ clock });
  const keysOf = createClientKeys(options.fetch ?? undefined, clock);

  async function check(
    token: string,
    client: Client,
    more: Pick<VerifyOptions, "requiredClaims">,
  ): Promise<VerifiedToken> {
    if (typeof client !== "object" || client === null) {
      throw new ConfigError("ERR_OPTION_INVALID", 'a client is expected: "clientId", and "jwks" or "jwksUri"');
    }
    const verified = await verify(token, {
      keys: keysOf(client),
      issuer: client.clientId,
      audience,
      algorithms: clientAlgorithms,
      clockToleranceSeconds,
      clock,
      ...more,
    });
    const { exp = 0 } = verified.claims;
    if (exp > clock.now() / 1000 + maxLifetimeSeconds + clockToleranceSeconds) {
      throw new TokenError("ERR_TOKEN_CLAIM", `claim "exp" is more than ${maxLifetimeSeconds} seconds ahead`);
    }
    return verified;
  }

  /** The last check, so that only a token that is good in all else is used up. */
  async function useOnce({ claims: { jti, exp = 0 } }: VerifiedToken, client: Client): Promise<void> {
    if (typeof jti !== "string" || jti === "")
      throw new TokenError("ERR_TOKEN_CLAIM", 'claim "jti" is not a string, or empty');
    const id = await replayId(client.clientId, jti);
    // `verify` compares whole seconds: this is the first moment at which it refuses the token.
    const expiresAt = Math.ceil(exp + clockToleranceSeconds) * 1000;
    if (!(await replay.use(id, expiresAt, client.clientId))) {
      throw new TokenError("ERR_TOKEN_REPLAYED", "the token was used before (claim jti)");
    }
    // A store may have forgotten the first use of a token that expired while its keys were fetched.
    if (clock.now() >= expiresAt) throw new TokenError("ERR_TOKEN_EXPIRED", "the token has expired");
  }

  return {
    async clientAssertion(assertion, client) {
      const verified = await check(assertion, client, { requiredClaims: ["sub", "jti"] });
      if (verified.claims.sub !== client.clientId) {
        throw new TokenError("ERR_TOKEN_CLAIM", 'claim "sub" is not the client (RFC 7523 section 3)');
      }
      await useOnce(verified, client);
      return verified;
    },

    async requestObject(requestObject, client) {
      const verified = await check(requestObject, client, { requiredClaims: ["client_id"] });
      const { claims } = verified;
      const broken =
        claims["client_id"] !== client.clientId
          ? '"client_id" is not the client'
          : claims.sub === client.clientId
            ? '"sub" is the client, as in a client assertion (RFC 9101 section 10.8)'
            : claims["request"] !== undefined || claims["request_uri"] !== undefined
              ? '"request" and "request_uri" do not belong into a request object (RFC 9101 section 4)'
              : undefined;
      if (broken !== undefined) throw new TokenError("ERR_TOKEN_CLAIM", `claim ${broken}`);
      if (claims.jti !== undefined) await useOnce(verified, client);
      return verified;
    },
  };
}

/** Of one length, however long a `jti` a client chooses: a store is bounded by its number of entries. */
async function replayId(clientId: string, jti: string): Promise<string> {
  const name = new TextEncoder().encode(JSON.stringify([clientId, jti]));
  return base64url.encode(new Uint8Array(await crypto.subtle.digest("SHA-256", name)));
}
