import { type Clock, systemClock } from "../../base/clock.ts";
import {
  ClientDocumentError,
  ConfigError,
  type JwksdErrorCode,
  JwksdError,
  TokenError,
  invalidOption,
} from "../../base/errors.ts";
import { isGiven } from "../../base/json.ts";
import {
  type Optional,
  type Rules,
  callback,
  checkOptions,
  clock,
  clockTolerance,
  number,
  object,
  required,
  nonEmptyString,
  strings,
  withMethods,
} from "../../base/options.ts";
import { textHash } from "../../keys/crypto/text-sha256.ts";
import type { Fetch } from "../http-cache/fetch-json.ts";
import { limitRequests } from "../http-cache/throttled-fetch.ts";
import { checkIssuer } from "../relying-party/secure-urls.ts";
import { readClaims, readHeader } from "../token/compact-jws.ts";
import { checkTyp } from "../token/typ-header.ts";
import { type VerifiedToken, verify } from "../token/verify.ts";
import { checkSpan, checkSoleAudience, checkTimes, futureSeconds } from "./audience-and-times.ts";
import type { ClientMethod } from "./auth-method.ts";
import { clientAlgorithms } from "./client-algorithms.ts";
import { type ClientDocuments, type ResolvedClient, fetchOf, isDocumentClient } from "./client-documents.ts";
import { type ClientKeyMetadata, createClientKeys } from "./client-keys.ts";
import { type ClientVerifierEvent, type TokenKind, printableEvents } from "./events.ts";
import { hostLimits } from "./fetch-limits.ts";
import { type SetIfAbsent, memoryReplayStore } from "./replay-store.ts";

/** Options for `createClientVerifier`. */
export interface ClientVerifierOptions {
  /** The provider's issuer identifier. The `aud` of every token must be the issuer or one of `audiences`. */
  readonly issuer: string;
  /**
   * Other `aud` values that name this provider, such as the URL of its token endpoint. Accepting them is a risk,
   * because a malicious provider can obtain assertions with such an `aud` and use them here. Default: none.
   *
   * @see CVE-2025-27370, CVE-2025-27371
   */
  readonly audiences?: Optional<readonly string[]>;
  /**
   * Fetches each client's `jwks_uri`. It must refuse private addresses, as `guardedFetch` from `jwksd/node` does.
   * Default: the `fetch` that `documents` uses. If `documents` is not given either, no `jwks_uri` is accepted.
   */
  readonly fetch?: Optional<Fetch>;
  /**
   * Finds clients that are not registered. It must be a result of `createClientDocuments`. Default: none, so the caller
   * must pass every client.
   */
  readonly documents?: Optional<ClientDocuments>;
  /**
   * Maximum number of cached sets that were fetched from a `jwks_uri` (4 KiB each on average). Also the maximum number
   * of cached keys that were passed by value. Default: 10,000.
   */
  readonly maxKeySets?: Optional<number>;
  /**
   * Store of used tokens, which all replicas must share. Default: this process's memory, for at most 100,000 tokens.
   */
  readonly replay?: Optional<SetIfAbsent>;
  /**
   * Maximum time until `exp`, in seconds. It is measured from now and, in a request object, from `nbf` too. Default:
   * 3600.
   */
  readonly maxLifetimeSeconds?: Optional<number>;
  /**
   * Allowed clock difference for `exp`, in seconds, at most 300. For `nbf` and `iat`, it is clamped to the range from
   * 10 to 60 seconds. Default: 0.
   */
  readonly clockToleranceSeconds?: Optional<number>;
  /** Source of the current time. Default: the machine's clock. */
  readonly clock?: Optional<Clock>;
  /** Receives an event for each refusal, request for keys, unusable set and exhausted budget. Default: no listener. */
  readonly onEvent?: Optional<(event: ClientVerifierEvent) => void>;
}

const clientVerifierRules: Rules<ClientVerifierOptions> = {
  issuer: required(nonEmptyString),
  audiences: strings,
  fetch: callback,
  documents: withMethods("resolve", "prove"),
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
   * Verifies a client assertion (`private_key_jwt`). Requires that `iss` and `sub` are the client, `aud` is only the
   * provider, `exp` is not too far in the future, `jti` has not been used before, and the `typ` header is
   * `client-authentication+jwt`, `JWT` or absent.
   *
   * @param client the client, if it is registered. Default: the client that `iss` names, as found by `documents`
   * @throws TokenError `ERR_TOKEN_REPLAYED`, `ERR_REPLAY_FULL`, and for the same reasons as `verify`
   * @throws ClientDocumentError, for the same reasons as `ClientDocuments`, if no client is passed
   * @throws FetchError if the client's keys are unavailable
   * @throws KeyMaterialError `ERR_KEY_FORMAT` if the client's `jwks` is not a JWK Set or its key is invalid
   * @throws ConfigError `ERR_OPTION_INVALID` if the client has no ID or no keys, or has a `jwksUri` but `fetch` is not
   * given
   * @see RFC 7523 section 3; draft-ietf-oauth-rfc7523bis section 4; OpenID Connect Core 1.0 section 9
   */
  clientAssertion(this: void, assertion: string, client?: ClientKeyMetadata): Promise<VerifiedToken>;
  /**
   * Verifies a request object (JAR). Requires that `iss` and `client_id` are the client, `aud` is or contains the
   * provider, and `exp` is not too far in the future. `sub` must not identify the client, because that would make it a
   * client assertion. `request` and `request_uri` must be absent, a `jti` must not have been used before, and the `typ`
   * header must be `oauth-authz-req+jwt`, `JWT` or absent.
   *
   * @param client the client, if it is registered. Default: the client that `iss` names, as found by `documents`
   * @throws TokenError `ERR_TOKEN_REPLAYED`, `ERR_REPLAY_FULL`, and for the same reasons as `verify`
   * @throws ClientDocumentError, for the same reasons as `ClientDocuments`, if no client is passed
   * @throws FetchError if the client's keys are unavailable
   * @throws KeyMaterialError `ERR_KEY_FORMAT` if the client's `jwks` is not a JWK Set or its key is invalid
   * @throws ConfigError `ERR_OPTION_INVALID` if the client has no ID or no keys, or has a `jwksUri` but `fetch` is not
   * given
   * @see RFC 9101 sections 4, 6 and 10.8
   */
  requestObject(this: void, requestObject: string, client?: ClientKeyMetadata): Promise<VerifiedToken>;
  /**
   * Authenticates a client that is identified by its metadata document, at the token endpoint. The client's
   * method was determined by the authorization request, so the client is refused if it has since changed its method,
   * does not send an assertion, or sends a secret. A client that is accepted counts as proven; see `ClientDocuments`.
   *
   * @param parameters the request's form parameters, including `client_id`, `client_assertion` and
   * `client_assertion_type`
   * @param granted the values that were stored with the code or refresh token: the `method`, and the `fingerprint` for
   * `changed`
   * @throws ClientDocumentError `ERR_CLIENT_METHOD`, and the same errors as `ClientDocuments`
   * @throws TokenError, FetchError, for the same reasons as `clientAssertion`
   * @see draft-ietf-oauth-client-id-metadata-document-02 section 8.2; RFC 7521 section 4.2
   */
  authenticate(this: void, parameters: TokenParameters, granted: GrantedClient): Promise<ResolvedClient>;
}

/** Form parameters of a request to the token endpoint, as `URLSearchParams`, `FormData` or an object. */
export type TokenParameters = Iterable<readonly [string, unknown]> | Readonly<Record<string, unknown>>;

/** The client that holds a code or a refresh token, as `resolve` returned it during the authorization request. */
export interface GrantedClient {
  readonly clientId: string;
  readonly method: ClientMethod;
  readonly fingerprint?: Optional<string>;
}

/** @see RFC 7523 section 2.2 */
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

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
  const { issuer, audiences = [], documents, maxKeySets = 10_000, clock = systemClock } = given;
  checkIssuer(issuer);
  const { maxLifetimeSeconds = 3_600, clockToleranceSeconds = 0, replay = memoryReplayStore({ clock }) } = given;
  const audience = [issuer, ...audiences];
  const emit = printableEvents(given.onEvent);
  const fetch = given.fetch
    ? limitRequests({ fetch: given.fetch, clock, perHost: hostLimits })
    : documents && fetchOf(documents);
  const keysOf = createClientKeys({ fetch, clock, maxKeySets, emit });

  async function check(
    token: string,
    client: ClientKeyMetadata,
    { typ, requiredClaims, algMember, isGranted }: Expected,
  ): Promise<VerifiedToken> {
    const alg = isDocumentClient(client) ? client.metadata[algMember] : undefined;
    if (isGiven(alg) && readHeader(token, clientAlgorithms).alg !== alg)
      throw new TokenError("ERR_TOKEN_ALG", `the token's alg differs from the client's "${algMember}"`);
    const keys = keysOf(client);
    const verified = await verify(token, {
      keys: keys.find,
      issuer: client.clientId,
      audience,
      algorithms: clientAlgorithms,
      // This is the largest difference that any claim allows. checkTimes is stricter.
      clockToleranceSeconds: Math.max(clockToleranceSeconds, futureSeconds.accepted),
      clock,
      requiredClaims,
    }).catch(explainAudience);
    checkTyp(verified.header, { typ, acceptsPlain: true });
    checkTimes(verified.claims, { nowSeconds: clock.now() / 1000, maxLifetimeSeconds, clockToleranceSeconds });
    // Anyone can make up clients that sign with their own keys, so an unregistered client is proven only if it has a
    // grant.
    if (isGranted || !isDocumentClient(client)) keys.prove();
    return verified;
  }

  /** Marks a token as used. This runs last, so that a rejected token does not count as used. */
  async function useOnce({ claims: { jti, exp } }: VerifiedToken, { clientId }: ClientKeyMetadata): Promise<void> {
    if (typeof jti !== "string" || jti === "")
      throw new TokenError("ERR_TOKEN_CLAIM", 'claim "jti" must be a non-empty string');
    // Uses a hash, because stores limit the number of entries, not the length of a jti.
    const key = await textHash(JSON.stringify([clientId, jti]));
    // The first time at which the token is rejected anyway, because times are compared in whole seconds.
    const expiresAt = Math.ceil(exp + clockToleranceSeconds) * 1000;
    if (!(await replay(key, expiresAt, clientId))) {
      throw new TokenError("ERR_TOKEN_REPLAYED", "the token has already been used (claim jti)");
    }
    // If the token expired while its keys were fetched, the store may have forgotten its first use.
    if (clock.now() >= expiresAt) throw new TokenError("ERR_TOKEN_EXPIRED", "the token has expired");
  }

  async function assertion(token: string, client: ClientKeyMetadata, isGranted: boolean): Promise<VerifiedToken> {
    if (isDocumentClient(client) && client.method !== "private_key_jwt")
      throw new ClientDocumentError(
        "ERR_CLIENT_METHOD",
        "the client is public, so it must not send a client assertion",
      );
    const verified = await check(token, client, {
      typ: "client-authentication+jwt",
      requiredClaims: ["sub", "jti"],
      algMember: "token_endpoint_auth_signing_alg",
      isGranted,
    });
    if (verified.claims.sub !== client.clientId) {
      throw new TokenError("ERR_TOKEN_CLAIM", 'claim "sub" does not identify the client (RFC 7523 section 3)');
    }
    checkSoleAudience(verified.claims, audience);
    await useOnce(verified, client);
    return verified;
  }

  async function request(token: string, client: ClientKeyMetadata): Promise<VerifiedToken> {
    if (isDocumentClient(client) && client.jwks === undefined && client.jwksUri === undefined)
      throw new ClientDocumentError(
        "ERR_CLIENT_KEYS_MISSING",
        "the client signed a request object, but its metadata document has no keys",
      );
    const verified = await check(token, client, {
      typ: "oauth-authz-req+jwt",
      requiredClaims: ["client_id"],
      algMember: "request_object_signing_alg",
      isGranted: false,
    });
    const { claims } = verified;
    const broken =
      claims["client_id"] !== client.clientId
        ? '"client_id" does not identify the client'
        : claims.sub === client.clientId
          ? '"sub" identifies the client, as in a client assertion (RFC 9101 section 10.8)'
          : claims["request"] !== undefined || claims["request_uri"] !== undefined
            ? '"request" and "request_uri" must not be in a request object (RFC 9101 section 4)'
            : undefined;
    if (broken !== undefined) throw new TokenError("ERR_TOKEN_CLAIM", `claim ${broken}`);
    checkSpan(claims, maxLifetimeSeconds);
    if (claims.jti !== undefined) await useOnce(verified, client);
    return verified;
  }

  /**
   * Wraps a function so that it finds the client that a token is from, and emits an event for each refusal. A caller's
   * mistake (ConfigError) is not a refusal.
   */
  function reporting(
    kind: TokenKind,
    verifyToken: (token: string, client: ClientKeyMetadata) => Promise<VerifiedToken>,
  ): ClientVerifier[TokenKind] {
    return async (token, client) => {
      let clientId = "";
      try {
        if (client !== undefined) {
          if (!object.holds(client))
            throw invalidOption('a client must be an object with "clientId", and "jwks" or "jwksUri"');
          ({ clientId } = client);
          return await verifyToken(token, client);
        }
        if (documents === undefined) throw invalidOption('pass the client, or set the "documents" option');
        readHeader(token, clientAlgorithms);
        const { iss } = readClaims(token);
        if (typeof iss !== "string") throw new TokenError("ERR_TOKEN_CLAIM", 'claim "iss" must identify the client');
        clientId = iss;
        return await verifyToken(token, await documents.resolve(clientId));
      } catch (error) {
        if (error instanceof JwksdError && !(error instanceof ConfigError)) {
          const budget = budgets[error.code];
          emit({ type: "refused", kind, clientId, code: error.code });
          if (budget !== undefined) emit({ type: "exhausted", budget, kind, clientId });
        }
        throw error;
      }
    };
  }

  const grantedAssertion = reporting("clientAssertion", async (token, client) => assertion(token, client, true));

  return {
    clientAssertion: reporting("clientAssertion", async (token, client) => assertion(token, client, false)),
    requestObject: reporting("requestObject", request),

    async authenticate(parameters, { clientId, method, fingerprint }) {
      if (documents === undefined) throw invalidOption('authenticate() requires the "documents" option');
      const sent = authenticationOf(parameters);
      const given = sent.get("client_assertion");
      const client = await documents.resolve(clientId, { since: fingerprint });
      const isSigned = method === "private_key_jwt";
      const broken =
        client.method !== method
          ? `the client's authentication method is no longer ${method}; the client must start a new authorization`
          : sent.has("client_secret")
            ? "a client with a metadata document has no secret"
            : (sent.get("client_id") ?? (isSigned ? clientId : undefined)) !== clientId
              ? "client_id does not identify the client that the grant belongs to"
              : isSigned && sent.get("client_assertion_type") !== assertionType
                ? `client_assertion_type must be ${assertionType}`
                : isSigned !== (typeof given === "string")
                  ? `the client's authentication method is ${method}, so client_assertion must ${isSigned ? "" : "not "}be sent`
                  : undefined;
      if (broken !== undefined) throw new ClientDocumentError("ERR_CLIENT_METHOD", broken);
      if (typeof given === "string") await grantedAssertion(given, client);
      documents.prove(clientId);
      return client;
    },
  };
}

/** The rules for one kind of token. */
interface Expected {
  readonly typ: string;
  readonly requiredClaims: readonly string[];
  /**
   * Member of a metadata document that names the only accepted algorithm.
   *
   * @see OpenID Connect Dynamic Client Registration 1.0 section 2
   */
  readonly algMember: "token_endpoint_auth_signing_alg" | "request_object_signing_alg";
  /** Whether the client has a code or a refresh token. */
  readonly isGranted: boolean;
}

const authenticationParameters: ReadonlySet<string> = new Set([
  "client_id",
  "client_assertion",
  "client_assertion_type",
  "client_secret",
]);

/**
 * Returns the form parameters that authenticate a client, keyed by name.
 *
 * @throws ClientDocumentError `ERR_CLIENT_METHOD` if a parameter is repeated, because servers disagree about which value to use
 * @see RFC 6749 section 3.2
 */
function authenticationOf(parameters: TokenParameters): ReadonlyMap<string, unknown> {
  const all = Symbol.iterator in parameters ? [...parameters] : Object.entries(parameters);
  const sent = all.filter(([name, value]) => value !== undefined && authenticationParameters.has(name));
  const byName = new Map(sent);
  if (byName.size < sent.length)
    throw new ClientDocumentError("ERR_CLIENT_METHOD", "a parameter that authenticates the client is repeated");
  return byName;
}

/** Adds a hint about how to accept the client, if the error is for an unexpected `aud`. */
function explainAudience(error: unknown): never {
  if (!(error instanceof TokenError && error.message.startsWith('claim "aud"'))) throw error;
  const hint = `${error.hint ?? ""}; if the client sends the URL of the token endpoint, add that URL to "audiences"`;
  throw new TokenError("ERR_TOKEN_CLAIM", error.message, { cause: error.cause, hint });
}

/** The exhausted budget, by error code. */
const budgets: { readonly [Code in JwksdErrorCode]?: "documents" | "keys" | "fetches" | "replay" } = {
  ERR_CLIENT_RETRY_LATER: "documents",
  ERR_KEYS_RETRY_LATER: "keys",
  ERR_FETCH_BUSY: "fetches",
  ERR_REPLAY_FULL: "replay",
};
