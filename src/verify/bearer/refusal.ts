import { type ErrorCode, FetchError, TokenError, codeOf } from "../../base/errors.ts";
import { type Reply, problem } from "../../publish/respond.ts";

export type Scheme = "Bearer" | "DPoP";

/** Error codes of challenges. @see RFC 6750 section 3.1; RFC 9449 section 12.2; RFC 9470 section 3 */
export type ChallengeError =
  | "invalid_request"
  | "invalid_token"
  | "insufficient_scope"
  | "insufficient_user_authentication"
  | "invalid_dpop_proof"
  | "use_dpop_nonce";

/** Why a request is not let through. */
export interface Refusal {
  readonly status: 400 | 401 | 403 | 503;
  /** None where no token came, and where the keys cannot be had. */
  readonly error?: ChallengeError;
  /** What the challenge asks for. Default: the scope of the route. */
  readonly scope?: string | undefined;
  /** A sentence for the developer of the client. It quotes nothing that came with the request. */
  readonly description?: string;
  /** More for the operator of the API. */
  readonly hint?: string | undefined;
  /** More parameters of the challenge. */
  readonly parameters?: Readonly<Record<string, string>>;
  /** Of a 503: when to try again. */
  readonly retryAfterSeconds?: number;
  /** The nonce for the next proof. */
  readonly nonce?: string;
  /** That of a bad token; of a 503, that of the error that prevented a decision. */
  readonly code?: ErrorCode;
  /** Of a 503. */
  readonly cause?: unknown;
}

/** A refusal by the application, of a token that holds. */
export interface Denial {
  /** 403: this token is not enough. 401: a new token may be. */
  readonly status: 401 | 403;
  /** A sentence for the developer of the client, of 1 to 500 characters. It should quote nothing that came with the request. */
  readonly description: string;
  /** The scope that would be enough. Default: none. */
  readonly scope?: string | undefined;
}

/** @see RFC 6750 section 3.1, which has one error for each status */
export const deniedBy = ({ status, description, scope }: Denial): Refusal => ({
  status,
  error: status === 401 ? "invalid_token" : "insufficient_scope",
  description,
  // With the scope of the route, which the token has, the client would ask for the same token again.
  scope: scope ?? "",
});

export const invalidRequest = (description: string): Refusal => ({
  status: 400,
  error: "invalid_request",
  description,
});
export const invalidToken = (description: string): Refusal => ({ status: 401, error: "invalid_token", description });
export const invalidProof = (description: string): Refusal => ({
  status: 401,
  error: "invalid_dpop_proof",
  description,
});

/** A token that does not hold is refused. What cannot be decided, because keys or a store cannot be had, is answered 503. */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof TokenError && !error.retryable)
    return { ...invalidToken(error.message), hint: error.hint, code: error.code };
  const seconds = error instanceof FetchError ? error.retryAfterSeconds : 0;
  return {
    status: 503,
    description: "the token cannot be checked now",
    retryAfterSeconds: Math.max(seconds, 1),
    code: codeOf(error),
    cause: error,
  };
}

/** The part that all challenges of a guard have in common. */
export interface ChallengeTerms {
  readonly schemes: readonly Scheme[];
  /** Algorithms of DPoP proofs. */
  readonly algorithms: readonly string[];
  /** The audience of the API, because a challenge needs a parameter. @see RFC 6750 section 3 */
  readonly realm: string;
  /** Where the metadata of the resource is. @see RFC 9728 section 5.1 */
  readonly resourceMetadata: string | undefined;
  /** Whether the token comes in the header `Authorization`. */
  readonly isInHeader: boolean;
}

export const titles: Readonly<Record<number, string>> = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  503: "Service Unavailable",
};

/**
 * The response to a request that is refused.
 *
 * @param scope what the route asks for
 * @see RFC 6750 section 3; RFC 9457
 */
export function replyTo(
  refusal: Refusal,
  scheme: Scheme | undefined,
  terms: ChallengeTerms,
  scope: string | undefined,
): Reply {
  const { status, description = needed(terms), retryAfterSeconds, nonce } = refusal;
  const headers: string[] = [];
  if (retryAfterSeconds !== undefined) headers.push("Retry-After", String(retryAfterSeconds));
  else {
    const asked = (refusal.scope ?? (status === 400 ? "" : scope)) || undefined;
    headers.push("WWW-Authenticate", challengesOf(refusal, scheme, terms, asked));
  }
  if (nonce !== undefined) headers.push("DPoP-Nonce", nonce);
  // The words of the challenge, where they are ASCII.
  return problem(status, titles[status] ?? "", description.replaceAll('"', "'"), headers).get;
}

const needed = ({ schemes: [scheme], isInHeader }: ChallengeTerms): string =>
  isInHeader ? `This needs an access token, sent as 'Authorization: ${scheme} TOKEN'.` : "This needs an access token.";

/**
 * Returns one challenge for each scheme that the client may use. The error is in the challenge of the scheme that it used. A client that used
 * DPoP gets that challenge alone, because clients read the first challenge only.
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
      const given = Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined);
      return `${scheme} ${given.map(([name, value]) => `${name}="${quotable(value)}"`).join(", ")}`;
    })
    .join(", ");
}

/** Without what a quoted-string would have to escape. @see RFC 6750 section 3 */
export function quotable(text: string): string {
  return text.replaceAll('"', "'").replace(/[^ !#-[\]-~]/g, "?");
}
