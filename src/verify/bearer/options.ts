import type { Optional } from "../../base/options.ts";
import type { Clock } from "../../base/clock.ts";
import type { ErrorCode } from "../../base/errors.ts";
import type { SetIfAbsent } from "../client/replay.ts";
import type { KeySetEvent, RemoteKeySetOptions } from "../relying-party/options.ts";
import type { KeySetState } from "../relying-party/stored.ts";
import type { KeySource } from "../token/verify.ts";

/** A provider whose tokens are taken: its issuer; with the URL of its JWK Set where it has no discovery document, or with a key set of your own. */
export type TrustedIssuer =
  | string
  | { readonly issuer: string; readonly jwksUri: string }
  | { readonly issuer: string; readonly keys: KeySource };

/** For tokens without `aud`: this claim must be or hold one of these values. If a token has `aud`, that must be one of them, too. */
export interface AudienceClaim {
  readonly claim: string;
  readonly values: readonly string[];
}

/** The request of an event. */
export interface EventRequest {
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** What the option `requestId` gives. */
  readonly id: string | undefined;
}

/** Keeps what a key set has fetched, for the start of a later process: a file, a key-value store. */
export interface StateStore {
  /** Returns the state that `set` last got for this issuer, if there is one. */
  get(issuer: string): KeySetState | null | undefined | Promise<KeySetState | null | undefined>;
  /** Called after each fetch. Nothing waits for it. */
  set(issuer: string, state: KeySetState): unknown;
}

/** What happened at a guard. No event holds a token, a proof or a query. */
export type BearerEvent =
  /** A request was refused. `error` is that of the challenge, `code` that of a bad token. `reason` says more than the client is told, and quotes nothing of the request. */
  | (EventRequest & {
      readonly type: "refused";
      readonly status: number;
      readonly error: string | undefined;
      readonly code: ErrorCode | undefined;
      readonly reason: string;
    })
  /** A request was answered 503, because of this error. */
  | (EventRequest & { readonly type: "failed"; readonly code: ErrorCode; readonly cause: unknown })
  /** An event of the key set of an issuer. */
  | { readonly type: "key-set"; readonly issuer: string; readonly event: KeySetEvent };

/** Options of `createBearer`. `issuer` and `audience` are required. */
export interface BearerOptions {
  /**
   * The issuer, several of them, or a function that says whether tokens of an issuer are taken. Compare `new URL(issuer).host`: anybody can make
   * an issuer that begins or ends as yours does.
   */
  readonly issuer: TrustedIssuer | readonly TrustedIssuer[] | ((issuer: string) => boolean | Promise<boolean>);
  /** `aud` of a token must be or hold this, or one of these. For a provider that sends no `aud`, another claim: it says less about the API. */
  readonly audience: string | readonly string[] | AudienceClaim;
  /**
   * `at+jwt`: the header `typ` must say that the token is an access token. `JWT`, for a provider that does not say so: `typ` may also be
   * `JWT` or absent. A token with `nonce`, `at_hash`, `c_hash`, `token_use` `id` (Cognito) or `typ` `ID` (Keycloak) is then refused as an ID
   * token. Other ID tokens are refused by their `aud` alone: `audience` must not be the client ID of an application that signs users in.
   * Default: `at+jwt`.
   *
   * @see RFC 9068 section 4; RFC 8725 section 3.11
   */
  readonly typ?: Optional<"at+jwt" | "JWT">;
  /** Algorithms that a token may be signed with. Default: all of RFC 7518 and RFC 8037 that have a public key. */
  readonly algorithms?: Optional<readonly string[]>;
  /** Allowed difference of the clocks, in seconds, at most 300. Default: 0. */
  readonly clockToleranceSeconds?: Optional<number>;
  /** Claims that may hold the scopes, as a text or a list: the first one that a token has. Default: `["scope", "scp"]`. */
  readonly scopeClaims?: Optional<readonly string[]>;
  /** Longest token, in bytes. Node itself takes 16 KiB for all header fields together (`--max-http-header-size`). Default: 16384. */
  readonly maxTokenBytes?: Optional<number>;
  /**
   * Finds the token in another place than the header `Authorization`: a cookie, or the subprotocol of a WebSocket. It gets the request as the
   * framework has it, and returns `undefined` where there is no token. What else is no text is refused. A token from the URL is refused, too.
   * Default: the header.
   *
   * @see RFC 6750 section 5.3
   */
  readonly token?: Optional<(request: never) => string | undefined | Promise<string | undefined>>;
  /** Claims that a token must have beside `iss`, `aud` and `exp`. `["cnf"]` refuses tokens that are bound to no key. Default: none. */
  readonly requiredClaims?: Optional<readonly string[]>;
  /** How many key sets are kept, if `issuer` is a function. Default: 100. */
  readonly maxIssuers?: Optional<number>;
  /** The identifier of this API, an https URL: each challenge names its metadata, and `bearer.metadata` serves it. Default: none. @see RFC 9728 */
  readonly resource?: Optional<string>;
  /** More members of the metadata, such as `scopes_supported`. Default: none. @see RFC 9728 section 2 */
  readonly metadata?: Optional<Readonly<Record<string, unknown>>>;
  /** Whether tokens may, or must, be bound to a key of the client. Default: a bound token is refused. @see RFC 9449 */
  readonly dpop?: Optional<"optional" | "required">;
  /** The public URL before the path of a request: origin, and the prefix that a proxy strips. Default: the origin of `resource`. */
  readonly baseUrl?: Optional<string>;
  /** How old a DPoP proof may be, in seconds. Default: 60. */
  readonly proofMaxAgeSeconds?: Optional<number>;
  /** Remembers used proofs; replicas must share one store. Default: the memory of this process, at most 100,000 proofs. */
  readonly replay?: Optional<SetIfAbsent>;
  /** A secret of at least 32 characters, the same in all replicas: proofs need a nonce that this API gave. Default: no nonces. */
  readonly nonceSecret?: Optional<string>;
  /**
   * The client certificate of a request, as PEM or DER, for tokens that are bound to one. The function gets the request as the framework has it.
   * Default: a bound token is refused.
   *
   * @see RFC 8705 section 3
   */
  readonly certificate?:
    | ((request: never) => string | Uint8Array | undefined | Promise<string | Uint8Array | undefined>)
    | null
    | undefined;
  /** Stores the keys for the next process. Default: none. */
  readonly state?: Optional<StateStore>;
  /** Options of the key sets, such as `timeoutMs` and `outageToleranceSeconds`. Default: those of `createRemoteKeySet`. */
  readonly keySet?: Optional<Omit<RemoteKeySetOptions, "issuer" | "jwksUri" | "clock" | "state" | "onEvent">>;
  /** Tells the time. Default: the clock of the machine. */
  readonly clock?: Optional<Clock>;
  /** The id of a request for events, such as that of your log. It gets the request as the framework has it. Default: no id. */
  readonly requestId?: Optional<(request: never) => string | undefined>;
  /** Gets refusals, answers of 503 with their cause, and events of the key sets. No event holds a token. Default: nobody listens. */
  readonly onEvent?: Optional<(event: BearerEvent) => void>;
}
