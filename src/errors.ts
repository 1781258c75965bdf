/**
 * Every stable error code, with what it means. `docs/errors.md` says for each what to do next,
 * and a test holds the two lists against each other.
 */
export const errorCodes = {
  ERR_OPTION_UNKNOWN: "an option, flag, variable or member that does not exist",
  ERR_OPTION_INVALID: "an option whose value is of the wrong type or out of range",
  ERR_ISSUER_INVALID: "an issuer that OpenID Connect Discovery does not allow",
  ERR_PATH_INVALID: "a path that breaks a path rule",
  ERR_PATH_CLASH: "two documents at one path",
  ERR_METADATA_RESERVED: "discovery metadata that would override a member that the provider sets itself",
  ERR_KEYSET_EMPTY: "no signing key, so no active key",
  ERR_KID_INVALID: "a kid that is missing, empty, or not well-formed Unicode",
  ERR_KID_DUPLICATE: "one kid on two entries, in one keyset or across both",
  ERR_KEY_DUPLICATE: "one key under two kids",
  ERR_KEY_IN_BOTH_KEYSETS: "one key both as a signing and as an encryption key",
  ERR_KEY_FORMAT: "key input in no known format, or a malformed one",
  ERR_KEY_UNSUPPORTED: "a key of a type, size or curve that may not be published for this use",
  ERR_KEY_NOT_P256: "a signing key that is not an ECDSA key on P-256",
  ERR_KEY_PURPOSE: "a key whose own use, alg or key_ops contradicts the keyset it is in",
  ERR_ALG_UNSUPPORTED: "an encryption alg that does not fit the key",
  ERR_PRIVATE_KEY_MISSING: "a signing key without its private part",
  ERR_KEY_MISMATCH: "a private key and a public key that do not belong together",
  ERR_NOT_AFTER_INVALID: "a notAfter that is no valid point in time",
  ERR_SIGNER_THROTTLED: "the backend of a signer asks to slow down",
  ERR_SIGNER_UNAVAILABLE: "the backend of a signer cannot be reached or failed",
  ERR_SIGNER_TIMEOUT: "a signature that was not made before its deadline",
  ERR_SIGNER_BUSY: "more signatures waiting than the queue of a signer holds",
  ERR_SIGNER_UNAUTHORIZED: "a backend that does not let this process use the key",
  ERR_SIGNER_KEY_STATE: "a key that its backend has disabled, deleted or lost",
  ERR_SIGNER_ABORTED: "a signature that its caller aborted",
  ERR_SIGNER_BAD_SIGNATURE: "a signature that the published key does not verify",
  ERR_SIGNER_PUBLISH_ONLY: "a signature asked of a process that only publishes public keys",
  ERR_CLAIMS_INVALID: "claims or token options that cannot be signed as they are",
  ERR_TOKEN_MALFORMED: "a token that is no compact JWS with a JSON header and JSON claims",
  ERR_TOKEN_TOO_LARGE: "a token of more than 16 KiB",
  ERR_TOKEN_ALG: "a token whose alg is not allowed, or not that of its key",
  ERR_TOKEN_CRIT: "a token with critical header parameters that are not understood",
  ERR_TOKEN_TYP: "a token of another type than expected",
  ERR_TOKEN_KID_MISSING: "a token without a kid",
  ERR_TOKEN_KID_UNKNOWN: "a token whose kid names no published key",
  ERR_TOKEN_SIGNATURE: "a token whose signature its key does not verify",
  ERR_TOKEN_EXPIRED: "a token after its exp",
  ERR_TOKEN_CLAIM: "a token with a claim that is missing or has an unexpected value",
  ERR_TOKEN_REPLAYED: "a token whose jti was used before",
  ERR_URL_INSECURE: "a URL that is not https, or not a URL",
  ERR_FETCH_FAILED: "a request that got no response",
  ERR_FETCH_TIMEOUT: "a response that did not arrive in time",
  ERR_FETCH_STATUS: "a response with a status that is of no use",
  ERR_FETCH_REDIRECT: "a redirect, which is not followed",
  ERR_FETCH_TOO_LARGE: "a response body that is too large",
  ERR_FETCH_BODY: "a response body that is not the expected JSON",
  ERR_DISCOVERY_ISSUER: "a discovery document of another issuer",
  ERR_FETCH_BUSY: "more requests under way than there may be",
  ERR_KEYS_LATER: "a kid that is not in the cached set, while no request may be made yet to look again",
  ERR_CLOSED: "a key set that was closed",
  ERR_ADDRESS_FORBIDDEN: "a URL from outside that leads to an address that is not public",
  ERR_REPLAY_FULL: "a token of a client whose tokens are too many to remember each",
  ERR_PREDICATE: "a rotation predicate that threw or returned something else than a boolean",
  ERR_FILE_UNREADABLE: "a file or folder that cannot be read",
  ERR_FILE_UNWRITABLE: "a file or folder that cannot be written",
  ERR_FILE_EXISTS: "a file that would have been overwritten",
  ERR_NO_KEY_FILES: "a key folder without a key file",
  ERR_CONFIG_FORMAT: "a file of configuration, metadata or signers that is not a JSON object",
  ERR_LISTEN: "an address that cannot be listened on",
  ERR_WORKER: "a worker process that did not start",
  ERR_POLICY_INVALID: "rotation durations that break the rotation arithmetic",
  ERR_KID_USED: "a kid that a key of the store has, or once had",
  ERR_KID_UNMANAGED: "a kid that no key of the store has",
  ERR_TRANSITION: "a step that the state of the keys does not allow",
  ERR_TOO_EARLY: "a step before the moment from which on it breaks nothing",
  ERR_RECORDS_INVALID: "key records that break a rule, so that they are not used",
  ERR_STORE_CONFLICT: "a commit that another one came before",
  ERR_STORE_UNAVAILABLE: "a store that cannot be read or written",
  ERR_STORE_FORMAT: "a file that is no store, or one of a later version",
  ERR_WRAPPING_KEY_INVALID: "a wrapping key that is not 32 bytes in base64url",
  ERR_WRAPPING_KEY_MISSING: "a private key under a wrapping key that was not given",
  ERR_WRAPPED_KEY: "a wrapped private key that is damaged, or of another kid or issuer",
  ERR_UPDATE: "a provider, or another target of a key manager, that has not taken new keys",
  ERR_CONFIRMATION: "a command that breaks verifications, without --yes",
  ERR_SIGNER_URI: "a key URI of an unknown kind, or one that names no immutable key version",
  ERR_PACKAGE_MISSING: "an optional package that is needed and not installed",
} as const;

/** A stable error code; the message may change between releases, the code may not. */
export type ErrorCode = keyof typeof errorCodes;

const retryableCodes: ReadonlySet<ErrorCode> = new Set([
  "ERR_SIGNER_THROTTLED",
  "ERR_SIGNER_UNAVAILABLE",
  "ERR_SIGNER_TIMEOUT",
  "ERR_SIGNER_BUSY",
  "ERR_FETCH_FAILED",
  "ERR_FETCH_TIMEOUT",
  "ERR_FETCH_STATUS",
  "ERR_FETCH_REDIRECT",
  "ERR_FETCH_TOO_LARGE",
  "ERR_FETCH_BODY",
  "ERR_FETCH_BUSY",
  "ERR_KEYS_LATER",
  "ERR_REPLAY_FULL",
  "ERR_STORE_CONFLICT",
  "ERR_STORE_UNAVAILABLE",
  "ERR_UPDATE",
]);

/** Base of every error that jwksd raises on purpose. No message ever holds key material, a token, a PIN or a body. */
export class JwksdError extends Error {
  /** Stable code, listed in `docs/errors.md`. */
  readonly code: ErrorCode;
  /** Whether the same call may succeed later without a change by the caller. */
  readonly retryable: boolean;

  constructor(code: ErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.retryable = retryableCodes.has(code);
  }
}

/** An option, path, issuer or configuration file is wrong: correct the configuration. */
export class ConfigError extends JwksdError {}

/** A key or keyset is wrong: correct the key material. Names entries by kid, never by their content. */
export class KeyMaterialError extends JwksdError {}

/** A signer cannot sign. */
export class SignerError extends JwksdError {}

/** Managed keys are not in a state for this step. */
export class StateError extends JwksdError {
  /** From when on the step breaks nothing, in epoch milliseconds; only of `ERR_TOO_EARLY`. */
  readonly allowedAt: number | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options: { readonly allowedAt?: number; readonly cause?: unknown } = {},
  ) {
    super(code, message, options);
    this.allowedAt = options.allowedAt;
  }
}

/** A store cannot be used as it is. */
export class StoreError extends JwksdError {}

/** A token cannot be made from its input, or is refused. */
export class TokenError extends JwksdError {
  /** For a response, where Express, Fastify and Koa find it: 401; 503 when `retryable`; 500 of `ERR_CLAIMS_INVALID`. */
  readonly status: number;

  constructor(code: ErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(code, message, options);
    this.status = this.retryable ? 503 : code === "ERR_CLAIMS_INVALID" ? 500 : 401;
  }
}

/** Keys cannot be had now: nothing is known about the token that needed them. */
export class FetchError extends JwksdError {
  /** For a response, where Express, Fastify and Koa find it: 503. */
  readonly status = 503;
  /** When to try again, in seconds; 0 for at once. */
  readonly retryAfterSeconds: number;
  /** For a response, where Express, Fastify and Koa find them: `Retry-After`, unless that is 0. @see RFC 9110 section 10.2.3 */
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    code: ErrorCode,
    message: string,
    { cause, retryAfterSeconds = 0 }: { readonly cause?: unknown; readonly retryAfterSeconds?: number } = {},
  ) {
    super(code, message, { cause });
    this.retryAfterSeconds = retryAfterSeconds;
    this.headers = retryAfterSeconds > 0 ? { "Retry-After": String(retryAfterSeconds) } : {};
  }
}

/** The service cannot do what it was asked to: read a file, listen, or start a worker. */
export class ServiceError extends JwksdError {}
