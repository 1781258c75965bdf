import type { errorTable } from "./error-table.ts";

type Table = typeof errorTable;
type ClassName = keyof Table;

/** The codes that an error class bears. */
export type CodeOf<Name extends ClassName> = keyof Table[Name];

/** A stable error code; the message may change between releases, the code may not. */
export type ErrorCode = { [Name in ClassName]: CodeOf<Name> }[ClassName];

type RetryableOf<Rows> = {
  [Code in keyof Rows]: Rows[Code] extends { readonly retryable: true } ? Code : never;
}[keyof Rows];
type RetryableCode = { [Name in ClassName]: RetryableOf<Table[Name]> }[ClassName];

/** The rows of the table that are retryable: no more and no fewer, or this does not compile. */
const retryable: Readonly<Record<RetryableCode, true>> = {
  ERR_SIGNER_THROTTLED: true,
  ERR_SIGNER_UNAVAILABLE: true,
  ERR_SIGNER_TIMEOUT: true,
  ERR_SIGNER_BUSY: true,
  ERR_FETCH_FAILED: true,
  ERR_FETCH_TIMEOUT: true,
  ERR_FETCH_STATUS: true,
  ERR_FETCH_REDIRECT: true,
  ERR_FETCH_TOO_LARGE: true,
  ERR_FETCH_BODY: true,
  ERR_FETCH_BUSY: true,
  ERR_KEYS_LATER: true,
  ERR_REPLAY_FULL: true,
  ERR_STORE_CONFLICT: true,
  ERR_STORE_UNAVAILABLE: true,
  ERR_UPDATE: true,
};

/** Base of every error that jwksd raises on purpose. No message ever holds key material, a token, a PIN or a body. */
export class JwksdError extends Error {
  /** Stable code, listed in `docs/errors.md`. */
  readonly code: ErrorCode;
  /** Whether the same call may succeed later without a change by the caller. */
  readonly retryable: boolean;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.retryable = Object.hasOwn(retryable, code);
  }
}

/** An option, path, issuer or configuration file is wrong: correct the configuration. */
export class ConfigError extends JwksdError {
  declare readonly code: CodeOf<"ConfigError">;

  constructor(code: CodeOf<"ConfigError">, message: string, options?: ErrorOptions) {
    super(code, message, options);
  }
}

/** A key or keyset is wrong: correct the key material. Names entries by kid, never by their content. */
export class KeyMaterialError extends JwksdError {
  declare readonly code: CodeOf<"KeyMaterialError">;

  constructor(code: CodeOf<"KeyMaterialError">, message: string, options?: ErrorOptions) {
    super(code, message, options);
  }
}

/** A signer cannot sign. */
export class SignerError extends JwksdError {
  declare readonly code: CodeOf<"SignerError">;

  constructor(code: CodeOf<"SignerError">, message: string, options?: ErrorOptions) {
    super(code, message, options);
  }
}

/** Managed keys are not in a state for this step. */
export class StateError extends JwksdError {
  declare readonly code: CodeOf<"StateError">;
  /** From when on the step breaks nothing, in epoch milliseconds; only of `ERR_TOO_EARLY`. */
  readonly allowedAt: number | undefined;

  constructor(
    code: CodeOf<"StateError">,
    message: string,
    options: { readonly allowedAt?: number; readonly cause?: unknown } = {},
  ) {
    super(code, message, options);
    this.allowedAt = options.allowedAt;
  }
}

/** A store cannot be used as it is. */
export class StoreError extends JwksdError {
  declare readonly code: CodeOf<"StoreError">;

  constructor(code: CodeOf<"StoreError">, message: string, options?: ErrorOptions) {
    super(code, message, options);
  }
}

/** A token cannot be made from its input, or is refused. */
export class TokenError extends JwksdError {
  declare readonly code: CodeOf<"TokenError">;
  /** For a response, where Express, Fastify and Koa find it: 401; 503 when `retryable`; 500 of `ERR_CLAIMS_INVALID`. */
  readonly status: number;

  constructor(code: CodeOf<"TokenError">, message: string, options?: ErrorOptions) {
    super(code, message, options);
    this.status = this.retryable ? 503 : code === "ERR_CLAIMS_INVALID" ? 500 : 401;
  }
}

/** Keys cannot be had now: nothing is known about the token that needed them. */
export class FetchError extends JwksdError {
  declare readonly code: CodeOf<"FetchError">;
  /** For a response, where Express, Fastify and Koa find it: 503. */
  readonly status = 503;
  /** When to try again, in seconds; 0 for at once. */
  readonly retryAfterSeconds: number;
  /** For a response, where Express, Fastify and Koa find them: `Retry-After`, unless that is 0. @see RFC 9110 section 10.2.3 */
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    code: CodeOf<"FetchError">,
    message: string,
    { cause, retryAfterSeconds = 0 }: { readonly cause?: unknown; readonly retryAfterSeconds?: number } = {},
  ) {
    super(code, message, { cause });
    this.retryAfterSeconds = retryAfterSeconds;
    this.headers = retryAfterSeconds > 0 ? { "Retry-After": String(retryAfterSeconds) } : {};
  }
}

/** The service cannot do what it was asked to: read a file, listen, or start a worker. */
export class ServiceError extends JwksdError {
  declare readonly code: CodeOf<"ServiceError">;

  constructor(code: CodeOf<"ServiceError">, message: string, options?: ErrorOptions) {
    super(code, message, options);
  }
}
