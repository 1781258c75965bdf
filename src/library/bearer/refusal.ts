import { type ErrorCode, FetchError, TokenError, codeOf } from "../../base/errors.ts";

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
  /** A sentence for the developer of the client. It quotes nothing that came with the request. */
  readonly description?: string;
  /** More for whoever runs the API. */
  readonly hint?: string | undefined;
  /** More parameters of the challenge. */
  readonly parameters?: Readonly<Record<string, string>>;
  /** Of a 503: when to try again. */
  readonly retryAfterSeconds?: number;
  /** The nonce for the next proof. */
  readonly nonce?: string;
  /** Of a 503: the error that prevented a decision. */
  readonly code?: ErrorCode;
  readonly cause?: unknown;
}

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
  if (error instanceof TokenError && !error.retryable) return { ...invalidToken(error.message), hint: error.hint };
  const seconds = error instanceof FetchError ? error.retryAfterSeconds : 0;
  return {
    status: 503,
    description: "the token cannot be checked now",
    retryAfterSeconds: Math.max(seconds, 1),
    code: codeOf(error),
    cause: error,
  };
}
