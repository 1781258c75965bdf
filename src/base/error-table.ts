interface Row {
  readonly when: string;
  readonly remedy: string;
  /** Whether the same call may succeed later without any change. */
  readonly retryable?: true;
}

/**
 * All stable error codes by class, with meanings and remedies. The types and `docs/errors.md` are generated from this
 * table. jwksd does not read it at run time, which keeps it out of bundles.
 */
export const errorTable = {
  ConfigError: {
    ERR_OPTION_UNKNOWN: {
      when: "an option, flag, variable or member does not exist",
      remedy: "use the name that the message suggests",
    },
    ERR_OPTION_INVALID: {
      when: "a value has the wrong type or is out of range",
      remedy: "change the value; the message states the rule",
    },
    ERR_ISSUER_INVALID: {
      when: "the issuer is missing, not https, or not in canonical form",
      remedy: "write it exactly as relying parties do: an https URL without a query or fragment",
    },
    ERR_PATH_INVALID: {
      when: "a path is not absolute, belongs to another document, or has a query, fragment, dot segment, empty segment or escape",
      remedy: "use a plain absolute path that no other document uses",
    },
    ERR_CONFIG_FORMAT: {
      when: "a JSON file (configuration, metadata, signers) is unreadable or not a JSON object",
      remedy: "correct the file at the line and column that the message names",
    },
    ERR_POLICY_INVALID: {
      when: "a duration in the rotation policy could make valid tokens fail",
      remedy: "change the number that the message names; the message also states the limit for that number",
    },
    ERR_WRAPPING_KEY_INVALID: {
      when: "a wrapping key is not 32 bytes in base64url",
      remedy: "generate a wrapping key with `openssl rand -base64 32 | tr '+/' '-_'`",
    },
    ERR_CONFIRMATION: {
      when: "a command would make valid tokens fail",
      remedy: "run it with `--dry-run` to see what it would break, then add `--yes`",
    },
    ERR_SIGNER_URI: {
      when: "a key URI has an unknown scheme, or names an alias instead of a key version",
      remedy: "write the URI as shown in `docs/signers.md`",
    },
    ERR_PACKAGE_MISSING: {
      when: "a required optional package or runtime feature is missing",
      remedy: "install the package or the runtime that the message names",
    },
  },
  KeyMaterialError: {
    ERR_KEYSET_EMPTY: {
      when: "there is no signing key, or a key folder contains no key files",
      remedy: "configure at least one key, for example one generated with `jwksd keygen`; the first key becomes active",
    },
    ERR_KID_INVALID: {
      when: "a kid is missing, empty or not well-formed Unicode",
      remedy: "give every entry a valid kid",
    },
    ERR_KID_DUPLICATE: {
      when: "two entries have the same kid, within a keyset or across keysets",
      remedy: "change one of the kids; a kid must never be used twice",
    },
    ERR_KEY_DUPLICATE: { when: "the same key is in two entries", remedy: "remove one entry, or generate a second key" },
    ERR_KEY_FORMAT: {
      when: "the input is not a key, the key is malformed or encrypted, or its `notAfter` is not a `Date`",
      remedy: "see the message; to convert a PEM file, use `openssl pkcs8 -topk8 -nocrypt`",
    },
    ERR_KEY_UNSUPPORTED: {
      when: "jwksd does not publish keys with this type, curve, size or `alg`",
      remedy:
        "for encryption, use an RSA key of at least 2048 bits or an EC key on P-256, P-384 or P-521, with an `alg` that the message lists",
    },
    ERR_KEY_NOT_P256: {
      when: "a signing key is not an ECDSA key on P-256",
      remedy: "generate a P-256 key with `jwksd keygen`",
    },
    ERR_KEY_PURPOSE: {
      when: "a JWK's `use`, `alg` or `key_ops` contradicts its keyset",
      remedy: "move the JWK to the other keyset, or correct it",
    },
    ERR_PRIVATE_KEY_MISSING: {
      when: "a signing key has no private key",
      remedy: "pass the private key or a signer",
    },
    ERR_KEY_MISMATCH: {
      when: "the private key does not match the public key, or a URI now identifies a different key",
      remedy:
        "for a key file, export the key again; for a key URI, restore the old key; for a store, restore its most recent good backup",
    },
  },
  SignerError: {
    ERR_SIGNER_THROTTLED: { when: "the backend is throttling requests", remedy: "retry later", retryable: true },
    ERR_SIGNER_UNAVAILABLE: {
      when: "the backend is unreachable or has failed; `cause` has the details",
      remedy: "retry later",
      retryable: true,
    },
    ERR_SIGNER_TIMEOUT: {
      when: "the signer did not return a signature before the deadline",
      remedy: "retry later; see `signerLimits.timeoutMs`",
      retryable: true,
    },
    ERR_SIGNER_BUSY: { when: "the signer's queue is full", remedy: "reduce the load and retry later", retryable: true },
    ERR_SIGNER_UNAUTHORIZED: {
      when: "the backend denies this process access",
      remedy: "correct the credentials or the backend's policy",
    },
    ERR_SIGNER_KEY_STATE: {
      when: "the key is disabled, deleted or lost",
      remedy: "enable the key, or rotate to another key",
    },
    ERR_SIGNER_ABORTED: { when: "the caller aborted the operation", remedy: "no action is needed" },
    ERR_SIGNER_BAD_SIGNATURE: {
      when: "the signature does not verify with the published key, so it was discarded",
      remedy: "check that the signer uses the right key for its kid and returns 64 bytes (r followed by s)",
    },
    ERR_SIGNER_STALE: {
      when: "this process has not checked in with its store for `maxStaleSeconds`, its clock is wrong, or the key was replaced",
      remedy:
        "retry with the key that is now active, or retry in another process; restore the connection to the store, or correct the clock",
      retryable: true,
    },
    ERR_SIGNER_DECOMMISSIONED: {
      when: "the issuer was decommissioned, so jwksd no longer signs for it",
      remedy: "no action is needed; see [decommissioning an issuer](many-issuers.md#decommissioning-an-issuer)",
    },
    ERR_SIGNER_PUBLISH_ONLY: {
      when: "the process only publishes keys, but was asked to sign",
      remedy: "use the process that has the private key to sign",
    },
  },
  InternalError: {
    ERR_INTERNAL: {
      when: "an unexpected error occurred, caused by a bug in jwksd or in a store or signer that you wrote; `cause` has the error",
      remedy: "fix the bug, or report it with the cause",
    },
  },
  RotationError: {
    ERR_KID_USED: {
      when: "a key in the store has this kid, or an earlier key had it",
      remedy: "choose another kid; a kid must never be used twice",
    },
    ERR_KID_UNMANAGED: {
      when: "the store has no key with this kid",
      remedy: "look for the kid in `manager.records` or in the output of `jwksd keys`",
    },
    ERR_TRANSITION: { when: "the keys' states do not allow the step", remedy: "see the message" },
    ERR_TOO_EARLY: {
      when: "taking the step now would make valid tokens fail; `allowedAt` is the earliest time at which the step is allowed, and is not set while clocks are out of sync",
      remedy: "wait, or force the step",
    },
    ERR_ISSUER_DECOMMISSIONED: {
      when: "the issuer was decommissioned; `allowedAt` says when its name can be used again, and is not set while its keys are still retiring",
      remedy: "use another issuer; see [decommissioning an issuer](many-issuers.md#decommissioning-an-issuer)",
    },
    ERR_UPDATE: {
      when: "a provider, or another subscriber to a key manager, threw an error or took more than 10 s; `cause` has the details",
      remedy: "fix the cause; jwksd retries",
      retryable: true,
    },
  },
  StoreError: {
    ERR_STORE_CONFLICT: {
      when: "another process committed first, so this commit changed nothing",
      remedy: "read the store again and retry",
      retryable: true,
    },
    ERR_COMMIT_UNKNOWN: {
      when: "the reply to a commit was lost, and the store cannot be read, so the commit may already have been written, or may still be written later",
      remedy: "read the store again; its revision and records show whether the commit was written",
      retryable: true,
    },
    ERR_STORE_UNAVAILABLE: {
      when: "the store cannot be read or written; `cause` has the details",
      remedy: "check the disk, path and permissions, then retry",
      retryable: true,
    },
    ERR_STORE_FULL: {
      when: "the change would make the stored document too large for the store; nothing was changed",
      remedy: "copy the keys to a larger store with `jwksd store migrate`; you can still revoke keys",
    },
    ERR_STORE_READ_ONLY: {
      when: "this process can read the store but cannot write to it",
      remedy: "grant write access, or have another process take the steps",
    },
    ERR_STORE_EMPTY: {
      when: "the store is missing or has no keys, although keys are required: `requireStore` or `--require-store` is set, or the saved set or a running process shows that the store had keys",
      remedy: "correct the store's path or URL; if the store is gone, see [a lost store](emergencies.md#a-lost-store)",
    },
    ERR_STORE_FORMAT: {
      when: "the file or table is not a jwksd store, or the journal next to the file belongs to a different store",
      remedy: "follow the message: check the path, or delete the journal",
    },
    ERR_STORE_ISSUER: {
      when: "the keys in the store belong to a different issuer",
      remedy: "set the issuer that the message names, or use another store",
    },
    ERR_STORE_NOT_AUTHENTIC: {
      when: "the records do not match their MAC, because the store is damaged or was changed without the wrapping key; jwksd does not use the records",
      remedy:
        "restore the most recent good backup; see [a store that is not authentic](emergencies.md#a-store-that-is-not-authentic)",
    },
    ERR_RECORDS_INVALID: {
      when: "the records break a rule (for example, two keys are active), or a key that is in use is missing; jwksd does not use the records",
      remedy:
        "restore the store's latest state; if only an older backup is left, see [a lost store](emergencies.md#a-lost-store)",
    },
    ERR_WRAPPING_KEY_MISSING: {
      when: "the store needs a wrapping key that is not configured",
      remedy: "configure the wrapping key that the message names",
    },
    ERR_WRAPPED_KEY: {
      when: "a wrapped key is damaged, or was wrapped for a different kid or issuer",
      remedy: "restore the store, or set the issuer that the keys belong to",
    },
    ERR_CLOSED: {
      when: "the key manager or the result of `createIssuers` was closed",
      remedy: "create a new key manager, or call `createIssuers` again",
    },
  },
  TokenError: {
    ERR_CLAIMS_INVALID: {
      when: "the claims, the header or the lifetime is invalid, so the token was not signed",
      remedy: "see the message",
    },
    ERR_CLAIMS_FORBIDDEN: {
      when: "the sign socket's policy does not allow the `typ`, audience or lifetime (or, for Kubernetes, the issuer or subject)",
      remedy: "request what the message lists as allowed, or change the policy",
    },
    ERR_TOKEN_MALFORMED: {
      when: "the token is not a compact JWS with a JSON header and JSON claims",
      remedy: "reject the token",
    },
    ERR_TOKEN_TOO_LARGE: { when: "the token is longer than `maxTokenBytes`", remedy: "reject the token" },
    ERR_TOKEN_ALG: { when: "`alg` is not allowed, or does not match the key", remedy: "reject the token" },
    ERR_TOKEN_CRIT: { when: "the token has an unknown critical header parameter", remedy: "reject the token" },
    ERR_TOKEN_TYP: { when: "the token's `typ` is not the expected one", remedy: "reject the token" },
    ERR_TOKEN_KID_MISSING: { when: "the header has no kid", remedy: "reject the token" },
    ERR_TOKEN_KID_UNKNOWN: { when: "no published key has this kid", remedy: "reject the token" },
    ERR_TOKEN_SIGNATURE: { when: "the signature is invalid", remedy: "reject the token" },
    ERR_TOKEN_EXPIRED: { when: "`exp` has passed", remedy: "get a new token" },
    ERR_TOKEN_CLAIM: {
      when: "a claim is missing or has an unexpected value; the message names the claim",
      remedy: "reject the token",
    },
    ERR_TOKEN_REPLAYED: { when: "the token's `jti` has already been used", remedy: "reject the token" },
    ERR_REPLAY_FULL: {
      when: "the client used more tokens than the replay store can remember, and this token may be one of them",
      remedy: "have the client send a new token; use a larger replay store or a shared one",
      retryable: true,
    },
  },
  ClientDocumentError: {
    ERR_CLIENT_ID: {
      when: "a client identifier is not the canonical https URL of a metadata document",
      remedy: "reject the client; the message states the rule",
    },
    ERR_CLIENT_FORBIDDEN: {
      when: "`allow` does not accept a metadata document's URL, or the URL of its keys",
      remedy: "reject the client; to accept it, add the host to `allow`",
    },
    ERR_CLIENT_DOCUMENT: {
      when: "a client's metadata document is invalid; the message states the rule",
      remedy: "reject the client; its operator must correct the document",
    },
    ERR_CLIENT_KEYS_MISSING: {
      when: "a metadata document offers `private_key_jwt` but has neither `jwks` nor `jwks_uri`",
      remedy: "reject the client; its operator must add the keys",
    },
    ERR_CLIENT_WITHDRAWN: {
      when: "the request for a client's metadata document returned 410",
      remedy: "reject the client, and consider revoking its tokens",
    },
    ERR_CLIENT_METHOD: {
      when: "a client does not offer an accepted authentication method, or a request does not use the client's authentication method",
      remedy: "reject the request; to accept clients without keys, set `publicClients`",
    },
  },
  FetchError: {
    ERR_CLIENT_RETRY_LATER: {
      when: "a client's metadata document cannot be requested yet, because of a failure or because there were too many new clients; `cause` has the failure",
      remedy: "respond with 503 and `Retry-After`, or retry",
      retryable: true,
    },
    ERR_KEYS_RETRY_LATER: {
      when: "keys cannot be requested yet, because of a failure or because there were too many unknown kids or new issuers; `cause` has the failure",
      remedy: "respond with 503 and `Retry-After`, or retry",
      retryable: true,
    },
    ERR_FETCH_BUSY: {
      when: "too many requests or DNS lookups are in flight, or too many requests were sent to one host",
      remedy: "retry after `retryAfterSeconds`",
      retryable: true,
    },
    ERR_FETCH_FAILED: {
      when: "the server did not send a response; `cause` has the details",
      remedy: "retry; check the network and TLS",
      retryable: true,
    },
    ERR_FETCH_TIMEOUT: { when: "no complete response arrived in time", remedy: "retry", retryable: true },
    ERR_FETCH_STATUS: { when: "the status is neither 200 nor 304", remedy: "check the URL", retryable: true },
    ERR_FETCH_REDIRECT: {
      when: "the server returned a redirect, which jwksd does not follow",
      remedy: "if the redirect's target is correct, configure that URL",
      retryable: true,
    },
    ERR_FETCH_TOO_LARGE: {
      when: "the body is larger than allowed",
      remedy: "check the URL; see `maxBytes`",
      retryable: true,
    },
    ERR_FETCH_BODY: {
      when: "the body is not the expected JSON, the set has no usable key, or a client's set has the wrong media type",
      remedy: "check the URL",
      retryable: true,
    },
    ERR_FETCH_OUTDATED: {
      when: "a cache returned an expired set that is older than the stored set",
      remedy: "configure the cache to send `Age` and to forward requests that specify `no-cache`, or bypass the cache",
      retryable: true,
    },
    ERR_DISCOVERY_ISSUER: {
      when: "the discovery document names a different issuer",
      remedy: "configure the issuer exactly as the provider writes it",
    },
    ERR_URL_INSECURE: {
      when: "a URL is malformed, too long, or not https",
      remedy: "use a valid https URL; in tests, `allowInsecure` allows http",
    },
    ERR_ADDRESS_FORBIDDEN: {
      when: "the host in a client's URL has an address that is not public",
      remedy: "reject the client's registration",
    },
    ERR_CLOSED: { when: "the key set was closed", remedy: "create a new key set" },
  },
  IoError: {
    ERR_FILE_UNREADABLE: { when: "a key file or folder cannot be read", remedy: "check its path and permissions" },
    ERR_FILE_UNWRITABLE: {
      when: "a file or folder cannot be written",
      remedy: "check the path, permissions and free space",
    },
    ERR_FILE_EXISTS: { when: "a file would have been overwritten", remedy: "choose another name" },
    ERR_TARGET: {
      when: "the target folder or bucket is locked or unreachable, denies this process access, or was changed by another process in the meantime",
      remedy: "see the message; `jwksd publish --follow` retries automatically",
      retryable: true,
    },
    ERR_PURGE: {
      when: "the documents were written, but the command that clears caches in front of the target failed",
      remedy: "correct `--purge-command`; jwksd runs it again",
      retryable: true,
    },
    ERR_NOT_SERVED: {
      when: "a document written to a target cannot be read at its URL, or caches may keep it for too long",
      remedy: "serve the target at that URL, or set the correct URL with `--verify-url`; jwksd retries",
      retryable: true,
    },
    ERR_LISTEN: { when: "the service cannot listen on the address", remedy: "see the message" },
  },
  JwksdError: {
    ERR_PREDICATE: {
      when: "`jwksRotationActive` threw or did not return a boolean; `onWarning` receives this as a warning",
      remedy: "fix the predicate; until then, rotation mode is on",
    },
  },
} as const satisfies Readonly<Record<string, Readonly<Record<string, Row>>>>;
