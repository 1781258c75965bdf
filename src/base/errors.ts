import type { errorTable } from "./error-table.ts";

type Table = typeof errorTable;
type ClassName = keyof Table;

/** The codes of an error class. */
export type CodeOf<Name extends ClassName> = keyof Table[Name];

/** A stable error code. Messages may change between releases; codes do not. */
export type JwksdErrorCode = { [Name in ClassName]: CodeOf<Name> }[ClassName];

type RetryableOf<Rows> = {
  [Code in keyof Rows]: Rows[Code] extends { readonly retryable: true } ? Code : never;
}[keyof Rows];
type RetryableCode = { [Name in ClassName]: RetryableOf<Table[Name]> }[ClassName];

/**
 * The codes that are marked as retryable in the table. If this object differs from the table, compilation fails.
 */
const retryable: Readonly<Record<RetryableCode, true>> = {
  ERR_SIGNER_THROTTLED: true,
  ERR_SIGNER_UNAVAILABLE: true,
  ERR_SIGNER_TIMEOUT: true,
  ERR_SIGNER_BUSY: true,
  ERR_SIGNER_STALE: true,
  ERR_FETCH_FAILED: true,
  ERR_FETCH_TIMEOUT: true,
  ERR_FETCH_STATUS: true,
  ERR_FETCH_REDIRECT: true,
  ERR_FETCH_TOO_LARGE: true,
  ERR_FETCH_BODY: true,
  ERR_FETCH_OUTDATED: true,
  ERR_FETCH_BUSY: true,
  ERR_KEYS_RETRY_LATER: true,
  ERR_CLIENT_RETRY_LATER: true,
  ERR_REPLAY_FULL: true,
  ERR_STORE_CONFLICT: true,
  ERR_COMMIT_UNKNOWN: true,
  ERR_STORE_UNAVAILABLE: true,
  ERR_UPDATE: true,
  ERR_TARGET: true,
  ERR_PURGE: true,
  ERR_NOT_SERVED: true,
};

/** Base class of all errors that jwksd throws. Messages never contain key material, tokens, PINs or bodies. */
export class JwksdError extends Error {
  /** Stable code, listed in `docs/errors.md`. */
  readonly code: JwksdErrorCode;
  /** Whether the same call may succeed later even if the caller changes nothing. */
  readonly retryable: boolean;

  constructor(code: JwksdErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.retryable = Object.hasOwn(retryable, code);
  }

  /**
   * Returns the error's members for logs. Includes the message, which `JSON.stringify` would otherwise omit, but not
   * the cause or the stack.
   */
  toJSON(): object {
    return Object.assign({ message: this.message }, this);
  }
}

class CodedError<Name extends ClassName> extends JwksdError {
  declare readonly code: CodeOf<Name> & JwksdErrorCode;

  constructor(code: CodeOf<Name> & JwksdErrorCode, message: string, options?: ErrorOptions) {
    super(code, message, options);
  }
}

/** Thrown if an option, path, issuer or configuration file is invalid. Correct the configuration. */
export class ConfigError extends CodedError<"ConfigError"> {}

/** @param rule what is wrong, and what to do; must not contain the value itself, which may be a misplaced secret */
export const invalidOption = (rule: string): ConfigError => new ConfigError("ERR_OPTION_INVALID", rule);

/**
 * Thrown if a key or keyset is invalid. Correct the key material. The message identifies entries by kid and never
 * quotes their content.
 */
export class KeyMaterialError extends CodedError<"KeyMaterialError"> {}

/** @param name the key's name in messages, such as `kid "2026-11"` or a file name */
export const keyError = (code: CodeOf<"KeyMaterialError">, name: string, rule: string): KeyMaterialError =>
  new KeyMaterialError(code, `${name}: ${rule}`);

/** Thrown for an unexpected error. */
export class InternalError extends CodedError<"InternalError"> {}

/** Returns the code of any error, for logs and metrics. */
export const codeOf = (error: unknown): JwksdErrorCode => (error instanceof JwksdError ? error.code : "ERR_INTERNAL");

/**
 * Returns an error from jwksd unchanged. Returns an `InternalError` for any other error, with that error as its cause.
 */
export function asJwksdError(error: unknown): JwksdError {
  if (error instanceof JwksdError) return error;
  return new InternalError("ERR_INTERNAL", "an unexpected error occurred; see the cause", { cause: error });
}

/** Thrown if a signer cannot sign. */
export class SignerError extends CodedError<"SignerError"> {}

/** Thrown if the states of the managed keys do not allow a step. */
export class RotationError extends CodedError<"RotationError"> {
  /**
   * Earliest time at which the step would not break anything, in epoch milliseconds, if known. Only set with
   * `ERR_TOO_EARLY`.
   */
  readonly allowedAt: number | undefined;

  constructor(
    code: CodeOf<"RotationError">,
    message: string,
    options: { readonly allowedAt?: number; readonly cause?: unknown } = {},
  ) {
    super(code, message, options);
    this.allowedAt = options.allowedAt;
  }
}

/** Thrown if a store cannot be used. */
export class StoreError extends CodedError<"StoreError"> {}

/** Thrown if a token is rejected, or cannot be created from its input. */
export class TokenError extends CodedError<"TokenError"> {
  /**
   * HTTP status that Express, Fastify and Koa send: 503 if `retryable`, 500 if claims could not be signed, and 401
   * otherwise.
   */
  readonly status: number;
  /** Hint for the operator, not for the client, such as the expected audience. Never quotes a token. */
  readonly hint: string | undefined;

  constructor(
    code: CodeOf<"TokenError">,
    message: string,
    options?: ErrorOptions & { readonly hint?: string | undefined },
  ) {
    super(code, message, options);
    this.hint = options?.hint;
    const isToSign = code === "ERR_CLAIMS_INVALID" || code === "ERR_CLAIMS_FORBIDDEN";
    this.status = this.retryable ? 503 : isToSign ? 500 : 401;
  }
}

export const invalidClaims = (rule: string, options?: ErrorOptions): TokenError =>
  new TokenError("ERR_CLAIMS_INVALID", rule, options);

/** Thrown if keys cannot be fetched at the moment, so it is unknown whether the token that needs them is valid. */
export class FetchError extends CodedError<"FetchError"> {
  /** HTTP status that Express, Fastify and Koa send. */
  readonly status = 503;
  /** Time to wait before retrying, in seconds. 0 if there is no need to wait. */
  readonly retryAfterSeconds: number;
  /**
   * Header fields that Express, Fastify and Koa send: `Retry-After`, unless `retryAfterSeconds` is 0.
   *
   * @see RFC 9110 section 10.2.3
   */
  readonly headers: Readonly<Record<string, string>>;
  /** Status that the server returned. Only set with `ERR_FETCH_STATUS`. */
  declare readonly answered?: number;

  constructor(
    code: CodeOf<"FetchError">,
    message: string,
    {
      cause,
      retryAfterSeconds = 0,
      answered,
    }: { readonly cause?: unknown; readonly retryAfterSeconds?: number; readonly answered?: number } = {},
  ) {
    super(code, message, { cause });
    if (answered !== undefined) this.answered = answered;
    this.retryAfterSeconds = retryAfterSeconds;
    this.headers = retryAfterSeconds > 0 ? { "Retry-After": String(retryAfterSeconds) } : {};
  }
}

/**
 * Thrown if a client that is identified by a metadata document is rejected because of its identifier, its document, or
 * the way it authenticates. OAuth servers report this as `invalid_client`.
 */
export class ClientDocumentError extends CodedError<"ClientDocumentError"> {
  /** HTTP status that Express, Fastify and Koa send. */
  readonly status = 400;
}

/** Thrown if jwksd cannot read or write a file, publish, or listen. */
export class IoError extends CodedError<"IoError"> {}
