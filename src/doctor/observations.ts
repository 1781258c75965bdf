/** One request and its response, as plain data. Unknown members are absent; for a file, there is only `body`. */
export interface HttpExchange {
  /** The last URL, after redirects. */
  readonly url?: string;
  /** Status of the last response, after redirects. */
  readonly status?: number;
  /** Header lines, with names in lower case and values as received. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** Body after decompression. Absent if there was no body or it is incomplete. */
  readonly body?: Uint8Array;
  /** URLs that redirected, in order. */
  readonly redirects?: readonly string[];
  /** The reason the response is missing or incomplete. */
  readonly failure?: Failure;
  /**
   * Time from when the connection (including TLS) was established to the first byte of the response, in milliseconds.
   */
  readonly waitMs?: number;
  /** Time at which the TLS certificate expires, in epoch milliseconds. */
  readonly tls?: { readonly notAfter: number };
}

/**
 * The reason there is no complete response. `forbidden-url`, `forbidden-address`: the request was not sent.
 * `unreachable`: no connection was established. `tls`: the certificate was not accepted. `timeout`, `too-large`,
 * `redirects`: the request exceeded a limit. `limit`: all requests together exceeded a limit. `protocol`: the response
 * is not valid HTTP. `incomplete`: the body ends early or cannot be decompressed.
 */
export interface Failure {
  /** Kind of failure. */
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
  /** The first request, repeated. */
  readonly again?: HttpExchange;
  /** Request with HEAD. */
  readonly head?: HttpExchange;
  /** Request with `If-None-Match` and the ETag of the first response. */
  readonly revalidate?: HttpExchange;
  /** Request with `If-None-Match` and a weak form of the first response's ETag. */
  readonly weak?: HttpExchange;
  /** Request with `If-None-Match` and an ETag that the server never sent. */
  readonly foreign?: HttpExchange;
  /** Request with `Accept: application/json`. */
  readonly json?: HttpExchange;
  /** Request with `Origin`. */
  readonly origin?: HttpExchange;
  /** Request without `User-Agent`. */
  readonly noAgent?: HttpExchange;
  /** Request with a browser's `User-Agent`. Sent only after a 401 or 403. */
  readonly browser?: HttpExchange;
  /** Request with `Accept-Encoding: gzip`. */
  readonly gzip?: HttpExchange;
  /** Request over IPv4. Present only if the host has both IPv4 and IPv6 addresses. */
  readonly ipv4?: HttpExchange;
  /** Request over IPv6. Present only if the host has both IPv4 and IPv6 addresses. */
  readonly ipv6?: HttpExchange;
}

/** Facts about an X.509 certificate. A caller without an X.509 parser can omit all certificates. */
export interface CertificateFacts {
  /** Public key. Absent if it cannot be represented as a JWK. */
  readonly jwk?: Readonly<Record<string, unknown>>;
  /** Start of the validity period, in epoch milliseconds. */
  readonly notBefore: number;
  /** End of the validity period, in epoch milliseconds. */
  readonly notAfter: number;
  /**
   * SHA-256 digests of the certificates in the same `x5c` whose keys signed this certificate, in the same form as
   * `sha256`.
   */
  readonly signers?: readonly string[];
  /** SHA-1 of the DER form, in base64url. */
  readonly sha1: string;
  /** SHA-256 of the DER form, in base64url. */
  readonly sha256: string;
}

/** One of several fetches of a JWK Set. */
export interface SetFetch {
  /** Time of the fetch, in epoch milliseconds. */
  readonly at: number;
  /** The request for the set. */
  readonly set: HttpExchange;
}

/** The parts of a provider's token that are kept. */
export interface SeenToken {
  /** Time at which the token was received, in epoch milliseconds. */
  readonly at: number;
  /** The `kid` in the header. */
  readonly kid: string;
  /** The `iat` claim, in epoch milliseconds. */
  readonly issuedAt?: number | undefined;
  /** The `exp` claim, in epoch milliseconds. */
  readonly expiresAt?: number | undefined;
}

/** All observations about an issuer, as plain data. */
export interface Observations {
  /** Time at which the first request was sent or the file was read, in epoch milliseconds. */
  readonly at: number;
  /** The issuer that relying parties configure. Absent if only a document is known. */
  readonly issuer?: string;
  /** The request for the discovery document. */
  readonly discovery?: HttpExchange;
  /** Requests for an authorization server's other metadata URLs. */
  readonly metadata?: readonly HttpExchange[];
  /** The first request for the JWK Set. */
  readonly set?: HttpExchange;
  /** Further requests for the JWK Set. */
  readonly probes?: Probes;
  /** Certificates, keyed by the string in `x5c`. `null` means that the string cannot be parsed. */
  readonly certificates?: Readonly<Record<string, CertificateFacts | null>>;
  /**
   * Keys that must not be used, as RFC 7638 thumbprints, 20 hex digits from Debian's `openssl-blacklist`, or moduli and
   * primes in hex.
   */
  readonly blocklist?: ReadonlySet<string>;
  /** Later fetches, oldest first. */
  readonly laterFetches?: readonly SetFetch[];
  /** Received tokens, for comparison with the fetches. */
  readonly tokens?: readonly SeenToken[];
}
