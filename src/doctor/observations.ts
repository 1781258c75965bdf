/** One request and what came back, as plain data. What is not known, or does not apply to a file, is left out. */
export interface Exchange {
  readonly url?: string;
  /** Of the last response, after redirects. */
  readonly status?: number;
  /** As received: names in lower case, one pair for each line. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** As received, after `Content-Encoding` is undone. Absent if there was none, or not all of it. */
  readonly body?: Uint8Array;
  /** The URLs that answered with a redirect, in order. */
  readonly redirects?: readonly string[];
  /** Why there is no whole response. */
  readonly failure?: Failure;
  /** From the end of the connection's handshakes to the first byte of the response. */
  readonly waitMs?: number;
  readonly tls?: { readonly notAfter: number };
}

/**
 * `forbidden-url`, `forbidden-address`: no request is made there. `unreachable`: no connection. `tls`: a certificate that is not accepted.
 * `timeout`, `too-large`, `redirects`: a limit of one request. `limit`: one of the whole look. `protocol`: no HTTP response.
 */
export interface Failure {
  readonly kind:
    | "forbidden-url"
    | "forbidden-address"
    | "unreachable"
    | "tls"
    | "timeout"
    | "too-large"
    | "redirects"
    | "limit"
    | "protocol";
  /** A word of the platform, such as `ECONNREFUSED`, or what the limit is. */
  readonly detail: string;
}

/** The requests for the JWK Set beside the first. */
export interface Probes {
  /** The same once more. */
  readonly again?: Exchange;
  readonly head?: Exchange;
  /** With `If-None-Match`: the ETag of the first response, */
  readonly revalidate?: Exchange;
  /** the same as a weak one, */
  readonly weak?: Exchange;
  /** and one that nobody has given out. */
  readonly foreign?: Exchange;
  /** With `Accept: application/json`. */
  readonly json?: Exchange;
  /** With `Origin`. */
  readonly origin?: Exchange;
  /** Without `User-Agent`. */
  readonly noAgent?: Exchange;
  /** With the `User-Agent` of a browser; asked for only where another request was turned away. */
  readonly browser?: Exchange;
  /** With `Accept-Encoding: gzip`. */
  readonly gzip?: Exchange;
  /** Over one family of addresses; both are there only if the name resolves to both. */
  readonly ipv4?: Exchange;
  readonly ipv6?: Exchange;
}

/** What a certificate says. Whoever has no X.509 parser leaves the certificates out. */
export interface CertificateFacts {
  /** Public members of its key; absent for a key that is no JWK. */
  readonly jwk?: Readonly<Record<string, unknown>>;
  /** In epoch milliseconds. */
  readonly notBefore: number;
  readonly notAfter: number;
  /** Digests of the DER form, in base64url. */
  readonly sha1: string;
  readonly sha256: string;
}

/** One of several looks at a JWK Set. */
export interface Look {
  /** In epoch milliseconds. */
  readonly at: number;
  readonly set: Exchange;
}

/** What is known of a token that was seen. */
export interface SeenToken {
  /** When it was seen, in epoch milliseconds. */
  readonly at: number;
  readonly kid: string;
  /** Of the token, in epoch milliseconds. */
  readonly issuedAt?: number | undefined;
  readonly expiresAt?: number | undefined;
}

/** All that is known about an issuer, as plain data. */
export interface Observations {
  /** When the first request was made, or the file was read, in epoch milliseconds. */
  readonly at: number;
  /** The issuer that relying parties are configured with. Absent if only the URL of a document is known, or a file. */
  readonly issuer?: string;
  readonly discovery?: Exchange;
  /** The JWK Set. */
  readonly set?: Exchange;
  readonly probes?: Probes;
  /** By the text of the `x5c` entry. `null` stands for one that cannot be read. */
  readonly certificates?: Readonly<Record<string, CertificateFacts | null>>;
  /** Keys to be refused: RFC 7638 thumbprints, or the 20 hex digits of Debian's `openssl-blacklist`. */
  readonly blocklist?: ReadonlySet<string>;
  /** Later looks, oldest first. */
  readonly looks?: readonly Look[];
  readonly tokens?: readonly SeenToken[];
}
