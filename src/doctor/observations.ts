/** One request and its response, as plain data. Unknown members are absent; a file has only `body`. */
export interface Exchange {
  /** Last URL, after redirects. */
  readonly url?: string;
  /** Status of the last response, after redirects. */
  readonly status?: number;
  /** Header lines: names in lower case, values as received. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** Body after decompression. Absent if there was none, or if it is incomplete. */
  readonly body?: Uint8Array;
  /** URLs that redirected, in order. */
  readonly redirects?: readonly string[];
  /** Reason why the response is missing or incomplete. */
  readonly failure?: Failure;
  /** Time from the connection (with TLS) to the first byte of the response, in milliseconds. */
  readonly waitMs?: number;
  /** Expiry of the TLS certificate, in epoch milliseconds. */
  readonly tls?: { readonly notAfter: number };
}

/**
 * Reason why there is no complete response. `forbidden-url`, `forbidden-address`: the request was not sent. `unreachable`: no connection.
 * `tls`: the certificate was not accepted. `timeout`, `too-large`, `redirects`: a limit of one request. `limit`: a limit of all requests
 * together. `protocol`: not valid HTTP. `incomplete`: the body ends early, or cannot be decompressed.
 */
export interface Failure {
  /** See above. */
  readonly kind:
    | "forbidden-url"
    | "forbidden-address"
    | "unreachable"
    | "tls"
    | "timeout"
    | "too-large"
    | "redirects"
    | "limit"
    | "protocol"
    | "incomplete";
  /** System error code, such as `ECONNREFUSED`, or the limit. */
  readonly detail: string;
}

/** Further requests for the JWK Set. */
export interface Probes {
  /** Repetition of the first request. */
  readonly again?: Exchange;
  /** With HEAD. */
  readonly head?: Exchange;
  /** With `If-None-Match` and the ETag of the first response. */
  readonly revalidate?: Exchange;
  /** With `If-None-Match` and a weak form of that ETag. */
  readonly weak?: Exchange;
  /** With `If-None-Match` and an ETag that the server never sent. */
  readonly foreign?: Exchange;
  /** With `Accept: application/json`. */
  readonly json?: Exchange;
  /** With `Origin`. */
  readonly origin?: Exchange;
  /** Without `User-Agent`. */
  readonly noAgent?: Exchange;
  /** With the `User-Agent` of a browser; sent only after 401 or 403. */
  readonly browser?: Exchange;
  /** With `Accept-Encoding: gzip`. */
  readonly gzip?: Exchange;
  /** Over IPv4; present only if the host has addresses of both families. */
  readonly ipv4?: Exchange;
  /** Over IPv6, likewise. */
  readonly ipv6?: Exchange;
}

/** Facts about an X.509 certificate. A caller without an X.509 parser omits all certificates. */
export interface CertificateFacts {
  /** Public key; absent if it has no JWK form. */
  readonly jwk?: Readonly<Record<string, unknown>>;
  /** Beginning of the validity period, in epoch milliseconds. */
  readonly notBefore: number;
  /** End of the validity period, in epoch milliseconds. */
  readonly notAfter: number;
  /** SHA-256 digests of the certificates in the same `x5c` whose key signed this one, in the form of `sha256`. */
  readonly signers?: readonly string[];
  /** SHA-1 of the DER form, in base64url. */
  readonly sha1: string;
  /** SHA-256 of the DER form, in base64url. */
  readonly sha256: string;
}

/** One of several fetches of a JWK Set. */
export interface Look {
  /** Time of the fetch, in epoch milliseconds. */
  readonly at: number;
  /** The request for the set. */
  readonly set: Exchange;
}

/** A token from the provider. Only these members are kept. */
export interface SeenToken {
  /** Time at which it was received, in epoch milliseconds. */
  readonly at: number;
  /** The `kid` in its header. */
  readonly kid: string;
  /** Its `iat` claim, in epoch milliseconds. */
  readonly issuedAt?: number | undefined;
  /** Its `exp` claim, in epoch milliseconds. */
  readonly expiresAt?: number | undefined;
}

/** All observations of an issuer, as plain data. */
export interface Observations {
  /** Time of the first request, or at which the file was read, in epoch milliseconds. */
  readonly at: number;
  /** Issuer, as relying parties configure it. Absent if only a document is known. */
  readonly issuer?: string;
  /** The request for the discovery document. */
  readonly discovery?: Exchange;
  /** Requests for the other metadata URLs of an authorization server. */
  readonly metadata?: readonly Exchange[];
  /** The first request for the JWK Set. */
  readonly set?: Exchange;
  /** Further requests for the JWK Set. */
  readonly probes?: Probes;
  /** Certificates by the string in `x5c`. `null` means that it cannot be parsed. */
  readonly certificates?: Readonly<Record<string, CertificateFacts | null>>;
  /** Keys that must not be used: RFC 7638 thumbprints, the 20 hex digits from Debian's `openssl-blacklist`, or moduli and primes in hex. */
  readonly blocklist?: ReadonlySet<string>;
  /** Later fetches, oldest first. */
  readonly looks?: readonly Look[];
  /** Tokens that were received, for checks against the fetches. */
  readonly tokens?: readonly SeenToken[];
}
