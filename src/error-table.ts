interface Row {
  readonly when: string;
  readonly remedy: string;
  /** The same call may succeed later without a change. */
  readonly retryable?: true;
}

/**
 * Every stable error code, under the class that bears it: when it is thrown, and what to do then. `docs/errors.md` and the types are
 * made from this table. jwksd does not read it at run time, so that no bundle holds it.
 */
export const errorTable = {
  ConfigError: {
    ERR_OPTION_UNKNOWN: {
      when: "an option, flag, variable or member does not exist",
      remedy: "take the name that the message suggests",
    },
    ERR_OPTION_INVALID: { when: "a value is of the wrong type or out of range", remedy: "see the rule in the message" },
    ERR_ISSUER_INVALID: {
      when: "the issuer is missing, not https, or not in canonical form",
      remedy: "write it as relying parties compare it: https, no query, no fragment",
    },
    ERR_PATH_INVALID: {
      when: "a path is not absolute, or has a query, fragment, dot segment, empty segment or an escape",
      remedy: "write a plain absolute path",
    },
    ERR_PATH_CLASH: {
      when: "the JWK Set would be where the discovery document is",
      remedy: "choose another `endpoints.jwks`",
    },
    ERR_METADATA_RESERVED: { when: "metadata would override what jwksd sets", remedy: "leave the member out" },
    ERR_CONFIG_FORMAT: {
      when: "a file of JSON (configuration, metadata, signers) is unreadable or no JSON object",
      remedy: "correct the file, at the line and column that the message names",
    },
    ERR_POLICY_INVALID: {
      when: "a duration of the rotation policy breaks the rotation arithmetic",
      remedy: "see the bound and the numbers in the message",
    },
    ERR_WRAPPING_KEY_INVALID: {
      when: "a wrapping key is not 32 bytes in base64url",
      remedy: "make one with `openssl rand 32 | basenc --base64url -w0`",
    },
    ERR_CONFIRMATION: {
      when: "a command would break verifications",
      remedy: "read with `--dry-run` what it breaks, then add `--yes`",
    },
    ERR_SIGNER_URI: {
      when: "a key URI is of an unknown kind, or names an alias and no key version",
      remedy: "write the URI as `docs/signers.md` shows it",
    },
    ERR_PACKAGE_MISSING: {
      when: "an optional package is needed and not installed",
      remedy: "install the package that the message names",
    },
  },
  KeyMaterialError: {
    ERR_KEYSET_EMPTY: {
      when: "there is no signing key",
      remedy: "configure at least one; the first is the active key",
    },
    ERR_KID_INVALID: { when: "a kid is missing, empty or not well-formed Unicode", remedy: "give every entry a kid" },
    ERR_KID_DUPLICATE: {
      when: "two entries share a kid, in or across keysets",
      remedy: "rename one; a kid is never used twice",
    },
    ERR_KEY_DUPLICATE: { when: "one key has two kids", remedy: "leave one entry out" },
    ERR_KEY_IN_BOTH_KEYSETS: { when: "one key is to sign and to encrypt", remedy: "make a second key" },
    ERR_KEY_FORMAT: {
      when: "the input is no key, or a malformed or encrypted one",
      remedy: "see the message; `openssl pkcs8 -topk8 -nocrypt` converts PEM",
    },
    ERR_KEY_UNSUPPORTED: {
      when: "type, curve or size may not be published",
      remedy: "encryption keys: RSA from 2048 bits, EC on P-256, P-384, P-521",
    },
    ERR_KEY_NOT_P256: { when: "a signing key is not an ECDSA key on P-256", remedy: "`jwksd keygen` makes one" },
    ERR_KEY_PURPOSE: {
      when: "`use`, `alg` or `key_ops` of a JWK contradicts its keyset",
      remedy: "put it into the other keyset, or correct the JWK",
    },
    ERR_ALG_UNSUPPORTED: { when: "an encryption `alg` does not fit the key", remedy: "take one from the message" },
    ERR_PRIVATE_KEY_MISSING: {
      when: "a signing key came without its private part",
      remedy: "hand over the private key, or a signer",
    },
    ERR_KEY_MISMATCH: {
      when: "private and public part are of two keys, or a URI has come to name another key",
      remedy:
        "export the key again; put the key of the URI back; of a key in a store, put the newest good copy of the store back",
    },
    ERR_NOT_AFTER_INVALID: { when: "`notAfter` is no valid `Date`", remedy: "pass a `Date`" },
  },
  SignerError: {
    ERR_SIGNER_THROTTLED: { when: "the backend asks to slow down", remedy: "retry later", retryable: true },
    ERR_SIGNER_UNAVAILABLE: {
      when: "the backend cannot be reached or failed; `cause` says more",
      remedy: "retry later",
      retryable: true,
    },
    ERR_SIGNER_TIMEOUT: {
      when: "no signature before the deadline",
      remedy: "retry later; see `signerLimits.timeoutMs`",
      retryable: true,
    },
    ERR_SIGNER_BUSY: { when: "the queue of the signer is full", remedy: "shed load, retry later", retryable: true },
    ERR_SIGNER_UNAUTHORIZED: { when: "the backend refuses this process", remedy: "correct credentials or policy" },
    ERR_SIGNER_KEY_STATE: { when: "the key is disabled, deleted or lost", remedy: "enable it, or rotate to another" },
    ERR_SIGNER_ABORTED: { when: "the caller aborted", remedy: "nothing" },
    ERR_SIGNER_BAD_SIGNATURE: {
      when: "the published key does not verify what the signer gave; the signature went nowhere",
      remedy: "check that the signer holds the key of its kid, and gives 64 bytes, r then s",
    },
    ERR_SIGNER_PUBLISH_ONLY: {
      when: "a signature was asked of a process that only publishes",
      remedy: "sign where the private key is",
    },
  },
  StateError: {
    ERR_KID_USED: {
      when: "a key of the store has this kid, or once had it",
      remedy: "choose another kid; none is ever used twice",
    },
    ERR_KID_UNMANAGED: { when: "no key of the store has this kid", remedy: "`jwksd keys` lists them" },
    ERR_TRANSITION: { when: "the state of the keys does not allow the step", remedy: "see the message" },
    ERR_TOO_EARLY: {
      when: "the step would break verifications now; `allowedAt` says from when on it does not",
      remedy: "wait, or force it",
    },
    ERR_UPDATE: {
      when: "a provider, or another target that a key manager drives, threw or took more than 10 s; `cause` says more",
      remedy: "mend it; it is tried again",
      retryable: true,
    },
  },
  StoreError: {
    ERR_STORE_CONFLICT: {
      when: "another commit came first; nothing was changed",
      remedy: "load again and retry",
      retryable: true,
    },
    ERR_STORE_UNAVAILABLE: {
      when: "the store cannot be read or written; `cause` says more",
      remedy: "check disk, path and permissions, then retry",
      retryable: true,
    },
    ERR_STORE_FORMAT: {
      when: "the file is no store, or one of a later jwksd",
      remedy: "check the path, or update jwksd",
    },
    ERR_STORE_ISSUER: {
      when: "the keys of the store are those of another issuer",
      remedy: "give the issuer that the message names, or use another store",
    },
    ERR_STORE_NOT_AUTHENTIC: {
      when: "the records are not those that were sealed under the wrapping key: somebody without it has changed the store, or it is damaged; they are not used",
      remedy:
        "put the newest good copy back; see [a store that is not authentic](operations.md#a-store-that-is-not-authentic)",
    },
    ERR_RECORDS_INVALID: {
      when: "the records break a rule, such as two active keys, or lack a key that is in use; they are not used",
      remedy: "put the newest store back; where there is only an older one, restart to go on with it",
    },
    ERR_WRAPPING_KEY_MISSING: {
      when: "a private key is wrapped, or the store is sealed, under a key that was not given",
      remedy: "give the wrapping key that the message names",
    },
    ERR_WRAPPED_KEY: {
      when: "a wrapped key is damaged, or was wrapped for another kid or issuer",
      remedy: "restore the store, or give the issuer of the keys",
    },
    ERR_CLOSED: { when: "the key manager was closed", remedy: "make a new one" },
  },
  TokenError: {
    ERR_CLAIMS_INVALID: { when: "claims, header or lifetime cannot be signed as they are", remedy: "see the message" },
    ERR_TOKEN_MALFORMED: { when: "no compact JWS with a JSON header and JSON claims", remedy: "refuse it" },
    ERR_TOKEN_TOO_LARGE: { when: "more than 16 KiB", remedy: "refuse it" },
    ERR_TOKEN_ALG: { when: "`alg` is not allowed, or not that of the key", remedy: "refuse it" },
    ERR_TOKEN_CRIT: { when: "critical header parameters are not understood", remedy: "refuse it" },
    ERR_TOKEN_TYP: { when: "another type of token", remedy: "refuse it" },
    ERR_TOKEN_KID_MISSING: { when: "no kid in the header", remedy: "refuse it" },
    ERR_TOKEN_KID_UNKNOWN: { when: "the kid names no published key", remedy: "refuse it" },
    ERR_TOKEN_SIGNATURE: { when: "the signature is wrong", remedy: "refuse it" },
    ERR_TOKEN_EXPIRED: { when: "`exp` has passed", remedy: "ask for a new one" },
    ERR_TOKEN_CLAIM: {
      when: "a claim is missing or has an unexpected value; the message names it",
      remedy: "refuse it",
    },
    ERR_TOKEN_REPLAYED: { when: "its `jti` was used before", remedy: "refuse it" },
    ERR_REPLAY_FULL: {
      when: "the client used too many tokens to remember each, and this one may be among them",
      remedy: "have it send a new token; use a larger or a shared store",
      retryable: true,
    },
  },
  FetchError: {
    ERR_KEYS_LATER: {
      when: "an unknown kid, or a failure, while no request may be made yet; `cause` says which",
      remedy: "answer 503 with `Retry-After`, or try again",
      retryable: true,
    },
    ERR_FETCH_BUSY: {
      when: "too many requests or lookups for the keys of clients are under way",
      remedy: "try again in a second",
      retryable: true,
    },
    ERR_FETCH_FAILED: {
      when: "no response; `cause` says more",
      remedy: "try again; check network and TLS",
      retryable: true,
    },
    ERR_FETCH_TIMEOUT: { when: "no whole response in time", remedy: "try again", retryable: true },
    ERR_FETCH_STATUS: { when: "a status other than 200 and 304", remedy: "check the URL", retryable: true },
    ERR_FETCH_REDIRECT: {
      when: "a redirect",
      remedy: "configure the URL that it leads to, if it is right",
      retryable: true,
    },
    ERR_FETCH_TOO_LARGE: {
      when: "the body is larger than allowed",
      remedy: "check the URL; see `maxBytes`",
      retryable: true,
    },
    ERR_FETCH_BODY: { when: "the body is not the expected JSON", remedy: "check the URL", retryable: true },
    ERR_DISCOVERY_ISSUER: {
      when: "the discovery document names another issuer; no stored set stands in",
      remedy: "configure the issuer exactly as the provider does",
    },
    ERR_URL_INSECURE: { when: "a URL is not https, or no URL", remedy: "use https; `allowInsecure` is for tests" },
    ERR_ADDRESS_FORBIDDEN: {
      when: "a client's URL leads to an address that is not public",
      remedy: "refuse the client's registration",
    },
    ERR_CLOSED: { when: "the key set was closed", remedy: "make a new one" },
  },
  ServiceError: {
    ERR_FILE_UNREADABLE: { when: "a key file or folder cannot be read", remedy: "check path and permissions" },
    ERR_FILE_UNWRITABLE: { when: "a file or folder cannot be written", remedy: "check path, permissions and space" },
    ERR_FILE_EXISTS: { when: "a file would have been overwritten", remedy: "choose another name" },
    ERR_NO_KEY_FILES: { when: "a key folder holds no key file", remedy: "`jwksd keygen --out FOLDER/NAME.jwk`" },
    ERR_LISTEN: { when: "the address cannot be listened on", remedy: "see the message" },
    ERR_WORKER: { when: "a worker process did not start", remedy: "see the message" },
  },
  JwksdError: {
    ERR_PREDICATE: {
      when: "`jwksRotationActive` threw or gave no boolean (a warning, to `onWarning`)",
      remedy: "correct the predicate; meanwhile the rotation mode is on",
    },
  },
} as const satisfies Readonly<Record<string, Readonly<Record<string, Row>>>>;
