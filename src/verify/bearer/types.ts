import type { Clock } from "../../base/clock.ts";
import type { JwksdErrorCode } from "../../base/errors.ts";
import type { Optional } from "../../base/options.ts";
import type { SetIfAbsent } from "../client/replay-store.ts";
import type { KeySetState } from "../relying-party/cached-key-set.ts";
import type { KeySetEvent, RemoteKeySetOptions } from "../relying-party/options.ts";
import type { KeyResolver } from "../token/verify.ts";

/**
 * A provider whose tokens are accepted. Give its issuer alone, its issuer and the JWK Set's URL (if it has no discovery
 * document), or its issuer and your own key set.
 */
export type TrustedIssuer =
  | string
  | { readonly issuer: string; readonly jwksUri: string }
  | { readonly issuer: string; readonly keys: KeyResolver };

/**
 * Claim to check in tokens that have no `aud`. It must be or contain one of these values, and so must the `aud` of a
 * token that does have one.
 */
export interface AudienceClaim {
  readonly claim: string;
  readonly values: readonly string[];
}

/** The request that an event is about. */
export interface EventRequest {
  readonly method: string;
  /** The path, without the query. */
  readonly path: string;
  /** The result of the `requestId` option. */
  readonly id: string | undefined;
}

/** Saves fetched keys for a later process, for example in a file or a key-value store. */
export interface KeySetStateStore {
  /** Returns the latest state that `set` received for this issuer, if there is one. */
  get(issuer: string): KeySetState | null | undefined | Promise<KeySetState | null | undefined>;
  /** Called after each fetch. No request waits for it. */
  set(issuer: string, state: KeySetState): unknown;
}

/** An event from a guard. Events never contain tokens, proofs or queries. */
export type BearerGuardEvent =
  /**
   * A request was refused. `error` is the error code in the challenge, and `code` says why a token is invalid. `reason`
   * is more detailed than the response, and does not quote anything from the request.
   */
  | (EventRequest & {
      readonly type: "refused";
      readonly status: number;
      readonly error: string | undefined;
      readonly code: JwksdErrorCode | undefined;
      readonly reason: string;
    })
  /** A request got a 503 response because of this error. */
  | (EventRequest & { readonly type: "failed"; readonly code: JwksdErrorCode; readonly cause: unknown })
  /** An event from an issuer's key set. */
  | { readonly type: "key-set"; readonly issuer: string; readonly event: KeySetEvent };

/** Options for `createBearerGuard`. `issuer` and `audience` are required. */
export interface BearerGuardOptions {
  /**
   * The issuer, several issuers, or a function that reports whether an issuer's tokens are accepted. In a function,
   * compare `new URL(issuer).host`, because anyone can create an issuer that begins or ends like yours.
   */
  readonly issuer: TrustedIssuer | readonly TrustedIssuer[] | ((issuer: string) => boolean | Promise<boolean>);
  /**
   * The token's `aud` must be or contain this value, or one of these values. For a provider that does not send `aud`,
   * name a different claim, which is a weaker indication that the token is for this API.
   */
  readonly audience: string | readonly string[] | AudienceClaim;
  /**
   * Type that the token's `typ` header must have. `at+jwt` requires the header to mark the token as an access token.
   * `JWT` is for providers that do not mark their tokens: `typ` may then also be `JWT` or absent, and tokens are
   * rejected as ID tokens if they contain `nonce`, `at_hash` or `c_hash`, if their `token_use` claim is `id` (Cognito),
   * or if their `typ` claim is `ID` (Keycloak). Other ID tokens can be recognized only by their `aud`, so `audience`
   * must not be the client ID of an application that signs users in. Default: `at+jwt`.
   *
   * @see RFC 9068 section 4; RFC 8725 section 3.11
   */
  readonly typ?: Optional<"at+jwt" | "JWT">;
  /** Algorithms that a token may be signed with. Default: all public-key algorithms in RFC 7518 and RFC 8037. */
  readonly algorithms?: Optional<readonly string[]>;
  /** Allowed clock skew, in seconds, at most 300. Default: 0. */
  readonly clockToleranceSeconds?: Optional<number>;
  /**
   * Claims that may contain the scopes, as a string or a list. The first one that the token contains is used. Default:
   * `["scope", "scp"]`.
   */
  readonly scopeClaims?: Optional<readonly string[]>;
  /**
   * Maximum length of a token, in bytes. Node itself accepts up to 16 KiB of header fields in total
   * (`--max-http-header-size`). Default: 16384.
   */
  readonly maxTokenBytes?: Optional<number>;
  /**
   * Finds a token that is not in the `Authorization` header but, for example, in a cookie or a WebSocket subprotocol.
   * Receives the request as the framework passes it. If there is no token, it must return `undefined`. Any other value
   * that is not a string is rejected, and so is a token that is repeated in the URL. Default: reads the header.
   *
   * @see RFC 6750 section 5.3
   */
  readonly token?: Optional<(request: never) => string | undefined | Promise<string | undefined>>;
  /**
   * Claims that a token must have besides `iss`, `aud` and `exp`. `["cnf"]` rejects tokens that are not bound to a key.
   * Default: none.
   */
  readonly requiredClaims?: Optional<readonly string[]>;
  /** Maximum number of key sets to keep if `issuer` is a function. Default: 100. */
  readonly maxIssuers?: Optional<number>;
  /**
   * This API's identifier: an https URL. If it is set, each challenge contains the metadata's URL, and
   * `bearer.metadata` serves the metadata. Default: none.
   *
   * @see RFC 9728
   */
  readonly resource?: Optional<string>;
  /** Additional metadata members, such as `scopes_supported`. Default: none. @see RFC 9728 section 2 */
  readonly metadata?: Optional<Readonly<Record<string, unknown>>>;
  /** Whether tokens may or must be bound to the client's key. Default: bound tokens are rejected. @see RFC 9449 */
  readonly dpop?: Optional<"optional" | "required">;
  /**
   * The part of the public URL before the request's path: the origin and any prefix that a proxy strips. Default: the
   * origin of `resource`.
   */
  readonly baseUrl?: Optional<string>;
  /** Maximum age of a DPoP proof, in seconds. Default: 60. */
  readonly proofMaxAgeSeconds?: Optional<number>;
  /**
   * Store of used proofs, which all replicas must share. Default: this process's memory, for at most 100,000 proofs.
   */
  readonly replay?: Optional<SetIfAbsent>;
  /**
   * Secret of at least 32 characters, which must be the same in all replicas. If it is set, proofs need a nonce from
   * this API. Default: no nonces.
   */
  readonly nonceSecret?: Optional<string>;
  /**
   * Returns a request's client certificate, as PEM or DER, for tokens that are bound to a certificate. Receives the
   * request as the framework passes it. Default: tokens bound to a certificate are rejected.
   *
   * @see RFC 8705 section 3
   */
  readonly certificate?:
    | ((request: never) => string | Uint8Array | undefined | Promise<string | Uint8Array | undefined>)
    | null
    | undefined;
  /** Stores the keys for the next process. Default: none. */
  readonly state?: Optional<KeySetStateStore>;
  /**
   * Options for the key sets, such as `timeoutMs` and `outageToleranceSeconds`. Default: the defaults of
   * `createRemoteKeySet`.
   */
  readonly keySet?: Optional<Omit<RemoteKeySetOptions, "issuer" | "jwksUri" | "clock" | "state" | "onEvent">>;
  /** Source of the current time. Default: the machine's clock. */
  readonly clock?: Optional<Clock>;
  /**
   * Returns a request's ID for events, such as the ID in your log. Receives the request as the framework passes it.
   * Default: no ID.
   */
  readonly requestId?: Optional<(request: never) => string | undefined>;
  /**
   * Receives events about refusals, the causes of 503 responses, and key sets. Events never contain tokens. Default:
   * none.
   */
  readonly onEvent?: Optional<(event: BearerGuardEvent) => void>;
}
