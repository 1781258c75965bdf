import { type Clock, systemClock } from "../../base/clock.ts";
import { ConfigError, type ErrorCode, JwksdError, TokenError, invalidOption } from "../../base/errors.ts";
import {
  type Optional,
  type Rules,
  callback,
  checkOptions,
  clock,
  clockTolerance,
  number,
  required,
  nonEmptyString,
  strings,
} from "../../base/options.ts";
import { textHash } from "../../keys/crypto/text-hash.ts";
import type { Fetch } from "../http-cache/fetch-json.ts";
import { checkIssuer } from "../relying-party/urls.ts";
import { checkTyp } from "../token/typ.ts";
import { type VerifiedToken, verify } from "../token/verify.ts";
import { checkSpan, checkSoleAudience, checkTimes, futureSeconds } from "./claims.ts";
import { clientAlgorithms } from "./client-algorithms.ts";
import { type Client, createClientKeys } from "./client-keys.ts";
import { type ClientEvent, type TokenKind, clientEvents } from "./events.ts";
import { type SetIfAbsent, memoryReplayStore } from "./replay.ts";

/** Options of `createClientVerifier`. */
export interface ClientVerifierOptions {
  /** Issuer identifier of the provider. The `aud` of every token must be the issuer, or one of `audiences`. */
  readonly issuer: string;
  /**
   * Other values of `aud` that name this provider, such as the URL of its token endpoint. They are a risk, because a
   * malicious provider can obtain assertions with such an `aud` and use them here. Default: none.
   *
   * @see CVE-2025-27370, CVE-2025-27371
   */
  readonly audiences?: Optional<readonly string[]>;
  /** Fetches the `jwks_uri` of clients and refuses private addresses: `guardedFetch` from `jwksd/node`. Default: no `jwks_uri` is accepted. */
  readonly fetch?: Optional<Fetch>;
  /**
   * Maximum number of cached sets from `jwks_uri` (4 KiB each on average), and of cached keys by value. Default:
   * 10,000.
   */
  readonly maxKeySets?: Optional<number>;
  /** Store of used tokens, which all replicas must share. Default: this process's memory, for at most 100,000 tokens. */
  readonly replay?: Optional<SetIfAbsent>;
  /** How far `exp` may be in the future or, in a request object, after `nbf`, in seconds. Default: 3600. */
  readonly maxLifetimeSeconds?: Optional<number>;
  /** Allowed clock difference for `exp`, in seconds, at most 300. For `nbf` and `iat`, at least 10 and at most 60 seconds apply. Default: 0. */
  readonly clockToleranceSeconds?: Optional<number>;
  /** Clock. Default: the machine's clock. */
  readonly clock?: Optional<Clock>;
  /** Receives refusals, requests for keys, unusable sets, and exhausted budgets. Default: no listener. */
  readonly onEvent?: Optional<(event: ClientEvent) => void>;
}

const clientVerifierRules: Rules<ClientVerifierOptions> = {
  issuer: required(nonEmptyString),
  audiences: strings,
  fetch: callback,
  maxKeySets: number(1),
  replay: callback,
  maxLifetimeSeconds: number(1),
  clockToleranceSeconds: clockTolerance,
  clock,
  onEvent: callback,
};

/** Verifies client assertions and request objects. */
export interface ClientVerifier {
  /**
   * Verifies a client assertion (`private_key_jwt`): `iss` and `sub` are the client, `aud` is only the provider, `exp`
   * is near, `jti` has not been used before, and the `typ` header is `client-authentication+jwt`, `JWT` or absent.
   *
   * @throws TokenError see `verify`, and `ERR_TOKEN_REPLAYED`, `ERR_REPLAY_FULL`
   * @throws FetchError if the keys of the client are unavailable
   * @throws KeyMaterialError `ERR_KEY_FORMAT` if the `jwks` of the client is not a JWK Set, or its key is invalid
   * @throws ConfigError `ERR_OPTION_INVALID` if the client has no id or no keys, or a `jwksUri` without the `fetch` option
   * @see RFC 7523 section 3; draft-ietf-oauth-rfc7523bis section 4; OpenID Connect Core 1.0 section 9
   */
  clientAssertion(this: void, assertion: string, client: Client): Promise<VerifiedToken>;
  /**
   * Verifies a request object (JAR): `iss` and `client_id` are the client, `aud` is or contains the provider, `exp` is
   * near, `sub` is not the client (that would make it a client assertion), `request` and `request_uri` are absent, a
   * `jti` has not been used before, and the `typ` header is `oauth-authz-req+jwt`, `JWT` or absent.
   *
   * @throws TokenError see `verify`, and `ERR_TOKEN_REPLAYED`, `ERR_REPLAY_FULL`
   * @throws FetchError if the keys of the client are unavailable
   * @throws KeyMaterialError `ERR_KEY_FORMAT` if the `jwks` of the client is not a JWK Set, or its key is invalid
   * @throws ConfigError `ERR_OPTION_INVALID` if the client has no id or no keys, or a `jwksUri` without the `fetch` option
   * @see RFC 9101 sections 4, 6 and 10.8
   */
  requestObject(this: void, requestObject: string, client: Client): Promise<VerifiedToken>;
}

/**
 * Creates a verifier for client assertions and request objects that are signed with RS256, PS256, ES256 or EdDSA.
 *
 * @example
 * ```ts
 * const verifier = createClientVerifier({ issuer: "https://login.example.com", fetch: guardedFetch });
 * const { claims } = await verifier.clientAssertion(assertion, { clientId, jwksUri });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function createClientVerifier(options: ClientVerifierOptions): ClientVerifier {
  const given = checkOptions(options, clientVerifierRules);
  const { issuer, audiences = [], fetch, maxKeySets = 10_000, clock = systemClock } = given;
  checkIssuer(issuer);
  const { maxLifetimeSeconds = 3_600, clockToleranceSeconds = 0, replay = memoryReplayStore({ clock }) } = given;
  const audience = [issuer, ...audiences];
  const emit = clientEvents(given.onEvent);
  const keysOf = createClientKeys({ fetch, clock, maxKeySets, emit });

  async function check(token: string, client: Client, typ: string, requiredClaims: string[]): Promise<VerifiedToken> {
    if (typeof client !== "object" || client === null) {
      throw invalidOption('a client must be an object with "clientId", and "jwks" or "jwksUri"');
    }
    const keys = keysOf(client);
    const verified = await verify(token, {
      keys: keys.find,
      issuer: client.clientId,
      audience,
      algorithms: clientAlgorithms,
      // The largest difference that any claim allows; checkTimes is stricter.
      clockToleranceSeconds: Math.max(clockToleranceSeconds, futureSeconds.accepted),
      clock,
      requiredClaims,
    });
    checkTyp(verified.header, { typ, acceptsPlain: true });
    checkTimes(verified.claims, { nowSeconds: clock.now() / 1000, maxLifetimeSeconds, clockToleranceSeconds });
    keys.prove();
    return verified;
  }

  /** Marks a token as used. Runs last, so a refused token does not count as used. */
  async function useOnce({ claims: { jti, exp } }: VerifiedToken, { clientId }: Client): Promise<void> {
    if (typeof jti !== "string" || jti === "")
      throw new TokenError("ERR_TOKEN_CLAIM", 'claim "jti" must be a non-empty string');
    // A hash, because stores limit the number of entries, not the length of a jti.
    const key = await textHash(JSON.stringify([clientId, jti]));
    // The first moment at which the token is refused: times are compared in whole seconds.
    const expiresAt = Math.ceil(exp + clockToleranceSeconds) * 1000;
    if (!(await replay(key, expiresAt, clientId))) {
      throw new TokenError("ERR_TOKEN_REPLAYED", "the token was used before (claim jti)");
    }
    // If the token expired while its keys were fetched, the store may have forgotten its first use.
    if (clock.now() >= expiresAt) throw new TokenError("ERR_TOKEN_EXPIRED", "the token has expired");
  }

  async function assertion(token: string, client: Client): Promise<VerifiedToken> {
    const verified = await check(token, client, "client-authentication+jwt", ["sub", "jti"]);
    if (verified.claims.sub !== client.clientId) {
      throw new TokenError("ERR_TOKEN_CLAIM", 'claim "sub" is not the client (RFC 7523 section 3)');
    }
    checkSoleAudience(verified.claims, audience);
    await useOnce(verified, client);
    return verified;
  }

  async function request(token: string, client: Client): Promise<VerifiedToken> {
    const verified = await check(token, client, "oauth-authz-req+jwt", ["client_id"]);
    const { claims } = verified;
    const broken =
      claims["client_id"] !== client.clientId
        ? '"client_id" is not the client'
        : claims.sub === client.clientId
          ? '"sub" is the client, as in a client assertion (RFC 9101 section 10.8)'
          : claims["request"] !== undefined || claims["request_uri"] !== undefined
            ? '"request" and "request_uri" must not be in a request object (RFC 9101 section 4)'
            : undefined;
    if (broken !== undefined) throw new TokenError("ERR_TOKEN_CLAIM", `claim ${broken}`);
    checkSpan(claims, maxLifetimeSeconds);
    if (claims.jti !== undefined) await useOnce(verified, client);
    return verified;
  }

  /** Wraps a method so that it emits an event for each refusal. A caller's mistake (ConfigError) is not a refusal. */
  function reporting(kind: TokenKind, verifyToken: ClientVerifier[TokenKind]): ClientVerifier[TokenKind] {
    return async (token, client) => {
      try {
        return await verifyToken(token, client);
      } catch (error) {
        if (error instanceof JwksdError && !(error instanceof ConfigError)) {
          const { clientId } = client;
          const budget = budgets[error.code];
          emit({ type: "refused", kind, clientId, code: error.code });
          if (budget !== undefined) emit({ type: "exhausted", budget, kind, clientId });
        }
        throw error;
      }
    };
  }

  return {
    clientAssertion: reporting("clientAssertion", assertion),
    requestObject: reporting("requestObject", request),
  };
}

/** The exhausted budget by error code. */
const budgets: { readonly [Code in ErrorCode]?: "keys" | "fetches" | "replay" } = {
  ERR_KEYS_RETRY_LATER: "keys",
  ERR_FETCH_BUSY: "fetches",
  ERR_REPLAY_FULL: "replay",
};
