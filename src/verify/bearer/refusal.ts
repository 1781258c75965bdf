import { type JwksdErrorCode, FetchError, TokenError, codeOf } from "../../base/errors.ts";
import { type Reply, problem } from "../../publish/respond.ts";

export type Scheme = "Bearer" | "DPoP";

/** Error codes in challenges. @see RFC 6750 section 3.1; RFC 9449 section 12.2; RFC 9470 section 3 */
export type ChallengeError =
  | "invalid_request"
  | "invalid_token"
  | "insufficient_scope"
  | "insufficient_user_authentication"
  | "invalid_dpop_proof"
  | "use_dpop_nonce";

/** The reason a request is not let through. */
export interface Refusal {
  readonly status: 400 | 401 | 403 | 503;
  /** Error code in the challenge. `undefined` if there was no token, or if the keys are unavailable. */
  readonly error?: ChallengeError;
  /** Scope that the challenge asks for. Default: the route's scope. */
  readonly scope?: string | undefined;
  /** Message for the client's developer. It does not quote anything from the request. */
  readonly description?: string;
  /** Message for the API's operator. */
  readonly hint?: string | undefined;
  /** Additional parameters for the challenge. */
  readonly parameters?: Readonly<Record<string, string>>;
  /** Time until the next attempt, in seconds, for a 503 response. */
  readonly retryAfterSeconds?: number;
  /** Nonce for the next proof. */
  readonly nonce?: string;
  /** Error code for an invalid token, or the code of the error that caused a 503 response. */
  readonly code?: JwksdErrorCode;
  /** Error that caused a 503 response. */
  readonly cause?: unknown;
}

/** Returns the reason for a refusal, for the API's operator. */
export const reasonOf = ({ description, hint }: Refusal): string =>
  [description, hint].filter((part) => part !== undefined).join(": ");

/**
 * Thrown to refuse a request. It is not an Error, because it never leaves the guard, and creating a stack trace would
 * account for a third of the time that an anonymous request takes.
 */
export class RefusedRequest {
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    this.refusal = refusal;
  }
}

/** The application's refusal of a valid token. */
export interface ApplicationDenial {
  /** Status: 403 if this token is insufficient, or 401 if a new token might be enough. */
  readonly status: 401 | 403;
  /** Message of 1 to 500 characters for the client's developer. It should not quote anything from the request. */
  readonly description: string;
  /** Scope that would be sufficient. Default: none. */
  readonly scope?: string | undefined;
}

/** Returns the refusal for a denial. @see RFC 6750 section 3.1 (one error for each status) */
export const deniedBy = ({ status, description, scope }: ApplicationDenial): Refusal => ({
  status,
  error: status === 401 ? "invalid_token" : "insufficient_scope",
  description,
  // The token already has the route's scope. If the challenge named that scope, the client would request the same token
  // again.
  scope: scope ?? "",
});

export const invalidRequest = (description: string): RefusedRequest =>
  new RefusedRequest({ status: 400, error: "invalid_request", description });
export const invalidToken = (description: string): RefusedRequest =>
  new RefusedRequest({ status: 401, error: "invalid_token", description });
export const invalidProof = (description: string): RefusedRequest =>
  new RefusedRequest({ status: 401, error: "invalid_dpop_proof", description });

/**
 * Returns the refusal for an error. If the error only means that keys or a store are unavailable, and so says nothing
 * about the token, the refusal is a 503.
 */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof RefusedRequest) return error.refusal;
  if (error instanceof TokenError && !error.retryable) {
    const { message, hint, code } = error;
    return { status: 401, error: "invalid_token", description: message, hint, code };
  }
  const seconds = error instanceof FetchError ? error.retryAfterSeconds : 0;
  return {
    status: 503,
    description: "the token cannot be checked at the moment",
    retryAfterSeconds: Math.max(seconds, 1),
    code: codeOf(error),
    cause: error,
  };
}

/** Values that are the same in all of a guard's challenges. */
export interface ChallengeTerms {
  readonly schemes: readonly Scheme[];
  /** Algorithms that are accepted for DPoP proofs. */
  readonly algorithms: readonly string[];
  /** The API's audience. It is included because a challenge needs at least one parameter. @see RFC 6750 section 3 */
  readonly realm: string;
  /** URL at which the resource's metadata is served. @see RFC 9728 section 5.1 */
  readonly resourceMetadata: string | undefined;
  /** Whether the token is in the `Authorization` header. */
  readonly isInHeader: boolean;
}

export const titles: Readonly<Record<number, string>> = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  503: "Service Unavailable",
};

/**
 * Returns the response to a refused request.
 *
 * @param scope the scope that the route requires
 * @see RFC 6750 section 3; RFC 9457
 */
export function replyTo(
  refusal: Refusal,
  scheme: Scheme | undefined,
  terms: ChallengeTerms,
  scope: string | undefined,
): Reply {
  const { status, description = missingTokenText(terms), retryAfterSeconds, nonce } = refusal;
  const headers: string[] = [];
  if (retryAfterSeconds !== undefined) headers.push("Retry-After", String(retryAfterSeconds));
  else {
    const required = (refusal.scope ?? (status === 400 ? "" : scope)) || undefined;
    headers.push("WWW-Authenticate", challengesOf(refusal, scheme, terms, required));
  }
  if (nonce !== undefined) headers.push("DPoP-Nonce", nonce);
  // This is the same text as in the challenge, provided that it is ASCII.
  return problem(status, titles[status] ?? "", description.replaceAll('"', "'"), headers).get;
}

const missingTokenText = ({ schemes: [scheme], isInHeader }: ChallengeTerms): string =>
  isInHeader
    ? `This request needs an access token, sent as 'Authorization: ${scheme} TOKEN'.`
    : "This request needs an access token.";

/**
 * Returns one challenge for each scheme that the client may use. The challenge for the scheme that the client used
 * contains the error. A client that used DPoP gets only the DPoP challenge, because clients read only the first
 * challenge.
 *
 * @see RFC 9449 sections 7.2 and 9
 */
function challengesOf(
  refusal: Refusal,
  used: Scheme | undefined,
  { schemes, algorithms, realm, resourceMetadata }: ChallengeTerms,
  scope: string | undefined,
): string {
  const blamed = used ?? schemes[0];
  const challenged = used === "DPoP" ? [used] : schemes;
  return challenged
    .map((scheme) => {
      const { error, description, parameters } = scheme === blamed ? refusal : {};
      const all = {
        realm,
        error,
        error_description: description,
        ...parameters,
        scope,
        algs: scheme === "DPoP" ? algorithms.join(" ") : undefined,
        resource_metadata: resourceMetadata,
      };
      const given = Object.entries(all).flatMap(([name, value]) =>
        value === undefined ? [] : `${name}="${quotable(value)}"`,
      );
      return `${scheme} ${given.join(", ")}`;
    })
    .join(", ");
}

/** Replaces the characters that would have to be escaped in a quoted string. @see RFC 6750 section 3 */
export function quotable(value: string): string {
  return value.replaceAll('"', "'").replace(/[^ !#-[\]-~]/g, "?");
}
