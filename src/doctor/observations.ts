/** One request and its response, as plain data. Unknown members are absent; for a file, only `body` is there. */
export interface Exchange {
  /** The last URL, after redirects. */
  readonly url?: string;
  /** Status of the last response, after redirects. */
  readonly status?: number;
  /** Header lines: names in lower case, values as received. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** The body after decompression. Absent if there was none, or if it is incomplete. */
  readonly body?: Uint8Array;
  /** The URLs that answered with a redirect, in order. */
  readonly redirects?: readonly string[];
  /** Why the response is missing or incomplete. */
  readonly failure?: Failure;
  /** Time from the connection (with TLS) to the first byte of the response, in milliseconds. */
  readonly waitMs?: number;
  /** End of the TLS certificate, in epoch milliseconds. */
  readonly tls?: { readonly notAfter: number };
}

/**
 * Why there is no complete response. `forbidden-url`, `forbidden-address`: the request was not sent. `unreachable`: no connection. `tls`: bad
 * certificate. `timeout`, `too-large`, `redirects`: a limit of one request. `limit`: a limit of the whole look. `protocol`: no valid HTTP.
 * `incomplete`: the body ends early, or cannot be decompressed.
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
  /** An error code of the system, such as `ECONNREFUSED`, or the limit. */
  readonly detail: string;
}

/** More requests for the JWK Set. */
export interface Probes {
  /** The same request again. */
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

/** The facts of an X.509 certificate. A caller without an X.509 parser leaves all certificates out. */
export interface CertificateFacts {
  /** The public key; absent if it has no JWK form. */
  readonly jwk?: Readonly<Record<string, unknown>>;
  /** In epoch milliseconds. */
  readonly notBefore: number;
  /** In epoch milliseconds. */
  readonly notAfter: number;
  /** SHA-256 digests, as below, of the certificates of the same `x5c` whose key signed this one. */
  readonly signers?: readonly string[];
  /** SHA-1 of the DER form, in base64url. */
  readonly sha1: string;
  /** SHA-256 of the DER form, in base64url. */
  readonly sha256: string;
}

/** One of several looks at a JWK Set. */
export interface Look {
  /** In epoch milliseconds. */
  readonly at: number;
  /** The request of the set. */
  readonly set: Exchange;
}

/** A token that was seen. */
export interface SeenToken {
  /** When it was seen, in epoch milliseconds. */
  readonly at: number;
  /** The kid of its header. */
  readonly kid: string;
  /** Claim `iat`, in epoch milliseconds. */
  readonly issuedAt?: number | undefined;
  /** Claim `exp`, in epoch milliseconds. */
  readonly expiresAt?: number | undefined;
}

/** All observations of an issuer, as plain data. */
export interface Observations {
  /** When the first request was made, or the file was read, in epoch milliseconds. */
  readonly at: number;
  /** The issuer as relying parties configure it. Absent if only a document is known. */
  readonly issuer?: string;
  /** The request of the discovery document. */
  readonly discovery?: Exchange;
  /** Requests at the other URLs of the metadata of an authorization server. */
  readonly metadata?: readonly Exchange[];
  /** The first request of the JWK Set. */
  readonly set?: Exchange;
  /** More requests of the JWK Set. */
  readonly probes?: Probes;
  /** Certificates by the text of the `x5c` entry. `null` means that it cannot be parsed. */
  readonly certificates?: Readonly<Record<string, CertificateFacts | null>>;
  /** Keys that must not be used: RFC 7638 thumbprints, the 20 hex digits of Debian's `openssl-blacklist`, or moduli and primes in hex. */
  readonly blocklist?: ReadonlySet<string>;
  /** Later looks, oldest first. */
  readonly looks?: readonly Look[];
  /** Tokens that were seen, for checks against the looks. */
  readonly tokens?: readonly SeenToken[];
}
