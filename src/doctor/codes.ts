/**
 * How bad a finding is. `broken`: a conforming verifier fails, or a secret is public. `risk`: verifiers fail at the next rotation or under
 * load. `advice`: everything works, but could be better.
 */
export type Severity = "broken" | "risk" | "advice";

/** What jwksd knows about one kind of finding. */
export interface Rule {
  /** How bad the finding is. */
  readonly severity: Severity;
  /** What is wrong, in a few words. */
  readonly title: string;
  /** What goes wrong because of it. */
  readonly why: string;
  /** The rule that is broken, with its section. */
  readonly rule: string;
  /** What to do, in one sentence. */
  readonly remedy: string;
}

const discovery = "OpenID Connect Discovery 1.0 section";

/** All findings by stable code. `docs/doctor.md` is made from this table. */
export const codes = {
  // The set as a whole.
  JWKS_NOT_JSON: {
    severity: "broken",
    title: "The JWK Set is not JSON",
    why: "No verifier can read any key.",
    rule: "RFC 7517 section 5",
    remedy: "Serve a JSON object with a member `keys` at this URL.",
  },
  JWKS_KEYS_MISSING: {
    severity: "broken",
    title: "The JWK Set has no member `keys`",
    why: "A verifier refuses the document as a whole. A single JWK is not a JWK Set.",
    rule: "RFC 7517 section 5.1",
    remedy: "Put the keys into an array under `keys`.",
  },
  JWKS_KEYS_NOT_LIST: {
    severity: "broken",
    title: "`keys` is not an array",
    why: "A verifier refuses the document as a whole.",
    rule: "RFC 7517 section 5.1",
    remedy: "Make `keys` an array of JWK objects, also when there is one key.",
  },
  JWKS_KEYS_EMPTY: {
    severity: "broken",
    title: "The JWK Set has no key",
    why: "Every token is refused, and caches keep the empty set for its lifetime.",
    rule: "RFC 7517 section 5.1",
    remedy: "Publish the public half of every key that signs or has signed tokens that are still valid.",
  },
  JWKS_MEMBER_NOT_OBJECT: {
    severity: "broken",
    title: "An entry of `keys` is not an object",
    why: "Verifiers that read the members of every entry fail at this one, and with it for the whole set.",
    rule: "RFC 7517 section 5.1",
    remedy: "Remove the entry.",
  },
  JWKS_KEYS_MANY: {
    severity: "risk",
    title: "The JWK Set has more than 100 keys",
    why: "Verifiers limit the number or the size of keys, and each verifier imports all of them.",
    rule: "RFC 8259 section 9",
    remedy: "Remove keys whose last token has expired.",
  },
  JWKS_KID_MISSING: {
    severity: "broken",
    title: "A key has no `kid`, although there are several keys",
    why: "A verifier picks a key by the `kid` of the token, so it never picks this one.",
    rule: "OpenID Connect Core 1.0 section 10.1",
    remedy: "Give each key a `kid` of its own, and put it into the header of the tokens.",
  },
  JWKS_KID_TYPE: {
    severity: "broken",
    title: "A `kid` is not a string",
    why: "It equals no `kid` of a token, and typed parsers refuse the whole set.",
    rule: "RFC 7517 section 4.5",
    remedy: "Write the `kid` as a JSON string.",
  },
  JWKS_KID_DUPLICATE: {
    severity: "broken",
    title: "Two different keys have the same `kid`",
    why: "A verifier tries the wrong one, or none.",
    rule: "RFC 7517 section 4.5",
    remedy: "Give each key a `kid` of its own; the RFC 7638 thumbprint is a good one.",
  },
  JWKS_KEY_TWICE: {
    severity: "broken",
    title: "One key is listed twice under one `kid`",
    why: "Verifiers that expect one match for a `kid` find two, and refuse the token.",
    rule: "RFC 7517 section 4.5",
    remedy: "List each key once for each `alg`.",
  },
  JWKS_KEY_TWO_KIDS: {
    severity: "advice",
    title: "One key is listed under two kids",
    why: "Nothing fails, but after one `kid` is revoked, the key still works under the other.",
    rule: "RFC 7517 section 4.5",
    remedy: "Give each key one `kid`.",
  },
  JWKS_ONE_OLD_KEY: {
    severity: "advice",
    title: "There is one signing key, and it is older than a year",
    why: "When the key leaks, a rotation that was never tried has to work at once.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Rotate the key: publish the next one, wait for the caches, then sign with it.",
  },

  // What each key says about itself.
  JWKS_PRIVATE_MEMBERS: {
    severity: "broken",
    title: "A private key is published",
    why: "Whoever has read the set can sign tokens as this issuer, for as long as any cache trusts the key.",
    rule: "RFC 7517 section 9.2",
    remedy:
      "Treat the key as compromised: stop signing with it, remove it from the set, publish a new one, and look for forged tokens.",
  },
  JWKS_OCT: {
    severity: "broken",
    title: "A symmetric key is published",
    why: "A symmetric key is a secret: whoever has read it can make and read whatever it protects.",
    rule: "RFC 7517 section 9.2",
    remedy: "Treat the secret as compromised, replace it everywhere, and publish public keys only.",
  },
  JWKS_KTY_MISSING: {
    severity: "broken",
    title: "A key has no `kty`",
    why: "No verifier can tell what kind of key it is.",
    rule: "RFC 7517 section 4.1",
    remedy: "Give the key its `kty`, or remove it.",
  },
  JWKS_KTY_UNKNOWN: {
    severity: "broken",
    title: "A key has a `kty` that is not registered",
    why: "Verifiers should ignore it (RFC 7517 section 5), but some refuse the whole set because of it.",
    rule: "RFC 7517 section 4.1",
    remedy: "Publish the key at a URL of its own, for the verifiers that know it.",
  },
  JWKS_KTY_AKP: {
    severity: "broken",
    title: "A post-quantum key (`AKP`) is in the set",
    why: "Verifiers should ignore a `kty` that they do not know (RFC 7517 section 5), but some refuse the whole set because of it.",
    rule: "RFC 9964 section 3",
    remedy: "Publish such keys at a URL of their own until the verifiers of this issuer are known to accept them.",
  },
  JWKS_EC_CURVE_UNKNOWN: {
    severity: "broken",
    title: "An EC key is on a curve other than P-256, P-384 and P-521",
    why: "Verifiers should ignore it (RFC 7517 section 5), but some refuse the whole set because of it.",
    rule: "RFC 7518 section 6.2.1.1",
    remedy: "Use P-256, or publish the key at a URL of its own.",
  },
  JWKS_OKP_CURVE: {
    severity: "broken",
    title: "An OKP key is on X25519, X448, Ed448 or an unknown curve",
    why: "Few verifiers know these. They should ignore the key (RFC 7517 section 5), but some refuse the whole set because of it.",
    rule: "RFC 8037 section 2",
    remedy: "Use Ed25519 or P-256, or publish the key at a URL of its own.",
  },
  JWKS_MEMBER_MISSING: {
    severity: "broken",
    title: "A key lacks a member that its `kty` requires",
    why: "Nothing can be verified with it, and verifiers that import all keys at once refuse the whole set.",
    rule: "RFC 7517 section 4",
    remedy: "Publish the whole key, each value as a string, or remove it.",
  },
  JWKS_MEMBER_TOO_LONG: {
    severity: "broken",
    title: "A value of a key is longer than that of any key",
    why: "Verifiers bound the work for one key, and refuse this one; those that do not bound it can be stopped by it.",
    rule: "RFC 7517 section 9",
    remedy: "Export the key again. A value of 16,384 characters or more is damaged, or an attack.",
  },
  JWKS_BASE64URL_PADDING: {
    severity: "broken",
    title: "A value is base64url with padding",
    why: "Strict decoders refuse `=`, so the key is not usable for them.",
    rule: "RFC 7515 section 2",
    remedy: "Encode without `=`.",
  },
  JWKS_BASE64URL_ALPHABET: {
    severity: "broken",
    title: "A value is not base64url",
    why: "`+`, `/`, blanks and line breaks are not in the alphabet, so strict decoders refuse the key and lax ones may read another.",
    rule: "RFC 7515 section 2",
    remedy: "Encode with `-` and `_`, and nothing between.",
  },
  JWKS_BASE64URL_BITS: {
    severity: "risk",
    title: "A base64url value has bits after its last byte",
    why: "One key then has two texts. Strict decoders refuse the one that is not canonical.",
    rule: "RFC 4648 section 3.5",
    remedy: "Encode the bytes again; the unused bits of the last character are zero.",
  },
  JWKS_ALG_MISSING: {
    severity: "advice",
    title: "A key has no `alg`",
    why: "`alg` is optional, but some verifiers need it, and without it an RSA key serves any RSA algorithm.",
    rule: "RFC 7517 section 4.4",
    remedy: "Add the one `alg` that the key is used with.",
  },
  JWKS_ALG_MISMATCH: {
    severity: "broken",
    title: "The `alg` of a key does not fit its type or curve",
    why: "A verifier that compares the two refuses the tokens of this key.",
    rule: "RFC 7517 section 4.4",
    remedy: "Write the algorithm that the key is used with, such as ES256 for P-256.",
  },
  JWKS_USE_ALG_CONTRADICT: {
    severity: "broken",
    title: "`use` and `alg` of a key contradict each other",
    why: "A verifier that reads the wrong one ignores the key.",
    rule: "RFC 7517 section 4.2",
    remedy: "Write `sig` for a signature algorithm and `enc` for an encryption algorithm.",
  },
  JWKS_USE_KEY_OPS_CONTRADICT: {
    severity: "broken",
    title: "`use` and `key_ops` of a key contradict each other",
    why: "A verifier that reads the wrong one ignores the key.",
    rule: "RFC 7517 section 4.3",
    remedy: "Keep `use` and leave out `key_ops`.",
  },
  JWKS_KEY_OPS_PRIVATE: {
    severity: "broken",
    title: "`key_ops` of a public key names what only the private half can do",
    why: "Web Crypto refuses to import a public key for `sign` or `decrypt`.",
    rule: "RFC 7517 section 4.3",
    remedy: "Write `verify` in the public JWK, or leave out `key_ops`.",
  },
  JWKS_KEY_OPS_TYPE: {
    severity: "broken",
    title: "`key_ops` is not an array of distinct strings",
    why: "Typed parsers and Web Crypto refuse the key.",
    rule: "RFC 7517 section 4.3",
    remedy: "Write an array, or leave out `key_ops`.",
  },
  JWKS_ENCRYPTION_KEY: {
    severity: "advice",
    title: "An encryption key is in the set",
    why: "That is allowed, but some older verifiers refuse a set with an algorithm that they cannot verify.",
    rule: "RFC 7517 section 4.2",
    remedy: "Keep it if relying parties encrypt to this issuer; else remove it.",
  },
  JWKS_KEY_KNOWN: {
    severity: "broken",
    title: "The private half of a key is known to everybody",
    why: "The key is from a specification, a sample, a development default or a broken generator, or is on the blocklist.",
    rule: "RFC 8725 section 3.5",
    remedy: "Treat the key as compromised: make a new one with `jwksd keygen`, and remove this one.",
  },

  // EC and OKP.
  JWKS_EC_COORDINATE_LENGTH: {
    severity: "broken",
    title: "An EC coordinate is shorter or longer than its curve",
    why: "Encoders that drop leading zero bytes do this to one key in 128, and encoders that keep a sign byte to most keys. Strict verifiers refuse the key.",
    rule: "RFC 7518 section 6.2.1.2",
    remedy: "Write each coordinate in the full size of the curve, leading zeros included (32 bytes on P-256).",
  },
  JWKS_EC_OFF_CURVE: {
    severity: "broken",
    title: "An EC key is not a point of its curve",
    why: "No signature verifies with it, and most verifiers refuse to import it.",
    rule: "RFC 8725 section 3.4",
    remedy: "Export the key again; `x`, `y` and `crv` do not belong together.",
  },
  JWKS_OKP_LENGTH: {
    severity: "broken",
    title: "An OKP key has the wrong size for its curve",
    why: "No verifier can import it.",
    rule: "RFC 8037 section 2",
    remedy: "Export the key again (Ed25519: 32 bytes).",
  },

  // RSA.
  JWKS_RSA_LEADING_ZERO: {
    severity: "broken",
    title: "`n` or `e` has a leading zero byte",
    why: "Encoders that keep a sign byte do this. Strict verifiers refuse the key, and its thumbprint differs.",
    rule: "RFC 7518 section 6.3.1.1",
    remedy: "Encode the integer without leading zero bytes.",
  },
  JWKS_RSA_SHORT: {
    severity: "broken",
    title: "An RSA key has less than 2048 bits",
    why: "Verifiers refuse it, and 1024 bits can be factored by those who want to.",
    rule: "RFC 7518 section 3.3",
    remedy: "Rotate to P-256, or to RSA with 2048 bits or more.",
  },
  JWKS_RSA_LARGE: {
    severity: "risk",
    title: "An RSA key has more than 8192 bits",
    why: "Verifiers that bound the cost of a signature refuse it.",
    rule: "RFC 7518 section 8.6",
    remedy: "Rotate to P-256, or to RSA with 2048 to 4096 bits.",
  },
  JWKS_RSA_EXPONENT: {
    severity: "broken",
    title: "The RSA exponent is even, or below 3",
    why: "With an exponent of 1 anybody can sign, and an even number is no RSA exponent.",
    rule: "RFC 8017 section 3.1",
    remedy: "Make a new key with the exponent 65537 (`AQAB`).",
  },
  JWKS_RSA_EXPONENT_LARGE: {
    severity: "risk",
    title: "The RSA exponent has more than 32 bits",
    why: "Verifiers that bound the cost of a signature refuse it.",
    rule: "RFC 7518 section 8.6",
    remedy: "Make a new key with the exponent 65537 (`AQAB`).",
  },
  JWKS_RSA_ROCA: {
    severity: "broken",
    title: "An RSA modulus has the fingerprint of ROCA (CVE-2017-15361)",
    why: "Keys of the broken Infineon generator can be factored at a cost that many can afford.",
    rule: "RFC 8725 section 3.5",
    remedy: "Treat the key as compromised, and make a new one with other hardware or firmware.",
  },
  JWKS_RSA_CLOSE_PRIMES: {
    severity: "broken",
    title: "The primes of an RSA key are too close (CVE-2022-26320)",
    why: "Fermat's method finds them in less than a second.",
    rule: "RFC 8725 section 3.5",
    remedy: "Treat the key as compromised, and make a new one with another generator.",
  },
  JWKS_RSA_SMALL_FACTOR: {
    severity: "broken",
    title: "An RSA modulus has a small factor",
    why: "The modulus is damaged, or its generator is broken. Either way it protects little.",
    rule: "RFC 8017 section 3.1",
    remedy: "Export the key again; if the same modulus comes out, treat the key as compromised and make a new one.",
  },
  JWKS_RSA_SHARED_PRIME: {
    severity: "broken",
    title: "Two RSA keys share a prime",
    why: "A greatest common divisor gives both private keys. The generator had too little randomness.",
    rule: "RFC 8725 section 3.5",
    remedy: "Treat the keys as compromised, and make new ones where there is randomness.",
  },

  // Certificates.
  JWKS_X5C_FORMAT: {
    severity: "broken",
    title: "`x5c` is not an array of base64 DER certificates",
    why: "Verifiers that take the key from the certificate cannot read it. PEM armour and base64url are wrong here.",
    rule: "RFC 7517 section 4.7",
    remedy: "Write each certificate as base64 (not base64url) DER, or leave out `x5c`.",
  },
  JWKS_X5C_MISMATCH: {
    severity: "broken",
    title: "The first certificate of `x5c` holds another key",
    why: "Verifiers that take the key from the certificate refuse every token that the key signs.",
    rule: "RFC 7517 section 4.7",
    remedy: "Publish the certificate of this key, or leave out `x5c`.",
  },
  JWKS_X5C_EXPIRED: {
    severity: "risk",
    title: "A certificate of `x5c` is not valid at this time",
    why: "Verifiers that validate the chain refuse the key.",
    rule: "RFC 5280 section 6.1.3",
    remedy: "Renew the certificate, or leave out `x5c`.",
  },
  JWKS_X5T_MISMATCH: {
    severity: "risk",
    title: "`x5t` is not the thumbprint of the certificate",
    why: "Verifiers that look keys up by it do not find this one. Often it is a hex digest, or one of the PEM text.",
    rule: "RFC 7517 section 4.8",
    remedy: "Write the base64url SHA-1 (`x5t`) or SHA-256 (`x5t#S256`) of the DER certificate, or leave it out.",
  },

  // The endpoint.
  HTTP_STATUS: {
    severity: "broken",
    title: "The JWK Set is not served with status 200",
    why: "No verifier gets a key.",
    rule: "RFC 9110 section 15.3.1",
    remedy: "Answer GET without credentials with 200.",
  },
  HTTP_TIMEOUT: {
    severity: "broken",
    title: "The response does not end within 10 seconds",
    why: "Verifiers give up sooner.",
    rule: "RFC 9112 section 9.5",
    remedy: "Serve the set from memory or from a cache.",
  },
  HTTP_INCOMPLETE: {
    severity: "broken",
    title: "The response is not complete",
    why: "A body that ends early, or that cannot be decompressed, is no document for any verifier.",
    rule: "RFC 9112 section 8",
    remedy: "Find out whether the server or a proxy cuts the response; Content-Length has to be that of the body.",
  },
  HTTP_TOO_LARGE: {
    severity: "broken",
    title: "The JWK Set is larger than 51,200 bytes",
    why: "Verifiers limit the size of what they read. Nimbus JOSE+JWT reads 50 KiB by default.",
    rule: "RFC 8259 section 9",
    remedy: "Remove keys whose last token has expired, and certificates that nobody asks for.",
  },
  HTTP_MEDIA_TYPE: {
    severity: "broken",
    title: "The media type is not that of a JWK Set or of JSON",
    why: "Verifiers that check it refuse the set.",
    rule: "RFC 7517 section 8.5",
    remedy: "Send `Content-Type: application/jwk-set+json`, or `application/json`.",
  },
  HTTP_NOT_ACCEPTABLE: {
    severity: "broken",
    title: "A request with `Accept: application/json` is refused",
    why: "Many verifiers send exactly this.",
    rule: "RFC 9110 section 12.5.1",
    remedy: "Ignore `Accept`: there is one representation.",
  },
  HTTP_SLOW_250: {
    severity: "advice",
    title: "Responses take longer than 250 ms",
    why: "Old versions of Nimbus JOSE+JWT give up after 250 ms by default.",
    rule: "RFC 9112 section 9.5",
    remedy: "Serve the set from memory, or put a cache near the verifiers.",
  },
  HTTP_SLOW_500: {
    severity: "risk",
    title: "Responses take longer than 500 ms",
    why: "Nimbus JOSE+JWT and Spring Security give up after 500 ms by default; under load this becomes failed logins.",
    rule: "RFC 9112 section 9.5",
    remedy: "Serve the set from memory, or put a cache near the verifiers.",
  },
  HTTP_REDIRECT: {
    severity: "broken",
    title: "The URL redirects",
    why: "Verifiers that do not follow redirects, for good reasons, get no key.",
    rule: "RFC 9110 section 15.4",
    remedy: "Advertise the URL at which the document is.",
  },
  HTTP_NO_CORS: {
    severity: "advice",
    title: "Browsers may not read the JWK Set",
    why: "Verifiers in a page of another origin get no key.",
    rule: "Fetch Standard section 3.3",
    remedy: "Send `Access-Control-Allow-Origin: *`; the document is public.",
  },
  HTTP_USER_AGENT: {
    severity: "broken",
    title: "Programs are turned away, browsers are not",
    why: "A firewall refuses requests without the User-Agent of a browser, which is what verifiers send.",
    rule: "RFC 9110 section 10.1.5",
    remedy: "Exempt this path from the rules against bots.",
  },
  HTTP_NO_USER_AGENT: {
    severity: "broken",
    title: "Requests without User-Agent are turned away",
    why: "Verifiers that send none get no key.",
    rule: "RFC 9110 section 10.1.5",
    remedy: "Exempt this path from the rules against bots.",
  },
  HTTP_NO_STORE: {
    severity: "risk",
    title: "The JWK Set may not be cached",
    why: "Verifiers that honour this fetch the set for each token, so the endpoint is part of every login and a target under load.",
    rule: "RFC 9111 section 5.2.2.5",
    remedy: "Send `Cache-Control: public, max-age=3600`, and announce keys for longer than that before they sign.",
  },
  HTTP_NO_LIFETIME: {
    severity: "advice",
    title: "The response states no lifetime",
    why: "Each verifier makes one up, so nobody knows for how long a key has to be announced.",
    rule: "RFC 9111 section 4.2",
    remedy: "Send `Cache-Control: public, max-age=3600`.",
  },
  HTTP_NO_VALIDATOR: {
    severity: "advice",
    title: "There is a lifetime, but no validator",
    why: "Every revalidation transfers the whole set.",
    rule: "RFC 9110 section 8.8.3",
    remedy: "Send a strong ETag, such as the SHA-256 of the body.",
  },
  HTTP_ETAG_WEAK: {
    severity: "advice",
    title: "The ETag is weak",
    why: "It does not promise the same bytes, and caches may not combine ranges by it.",
    rule: "RFC 9110 section 8.8.1",
    remedy: "Send a strong ETag, such as the SHA-256 of the body.",
  },
  HTTP_ETAG_CHANGES: {
    severity: "risk",
    title: "The ETag changes while the bytes do not",
    why: "Each node, or each restart, makes its own tag, so a revalidation never gets a 304.",
    rule: "RFC 9110 section 8.8.1",
    remedy: "Derive the ETag from the bytes.",
  },
  HTTP_HEAD: {
    severity: "advice",
    title: "HEAD is not answered as GET is",
    why: "Monitors and caches that revalidate with HEAD see another state than verifiers do.",
    rule: "RFC 9110 section 9.3.2",
    remedy: "Answer HEAD with the status and headers of GET.",
  },
  HTTP_NO_304: {
    severity: "advice",
    title: "If-None-Match with the current ETag is not answered with 304",
    why: "The ETag is of no use: every revalidation transfers the whole set.",
    rule: "RFC 9110 section 13.1.2",
    remedy: "Compare If-None-Match with the ETag, and answer 304 without a body.",
  },
  HTTP_304_HEADERS: {
    severity: "risk",
    title: "A 304 lacks or changes header fields of the 200",
    why: "A cache takes its new lifetime from the 304. Without Cache-Control and ETag, the copy expires, or gets another lifetime.",
    rule: "RFC 9110 section 15.4.5",
    remedy: "Send the same Cache-Control, ETag, Vary and Expires with 304 as with 200.",
  },
  HTTP_304_FOREIGN: {
    severity: "broken",
    title: "A foreign ETag is answered with 304",
    why: "A verifier keeps its old set for ever, so the next rotation fails there.",
    rule: "RFC 9110 section 13.1.2",
    remedy: "Answer 304 only if If-None-Match lists the current ETag.",
  },
  HTTP_CONDITIONAL_STATUS: {
    severity: "broken",
    title: "A conditional GET is answered neither with 200 nor with 304",
    why: "Every verifier that revalidates fails.",
    rule: "RFC 9110 section 13.2.2",
    remedy: "Answer a conditional GET with 304 or with the whole set.",
  },
  HTTP_SET_COOKIE: {
    severity: "advice",
    title: "The response sets a cookie",
    why: "Shared caches then do not store the response, or hand the cookie of one client to all.",
    rule: "RFC 9111 section 7.3",
    remedy: "Serve the set outside of sessions and load balancer stickiness.",
  },
  HTTP_BOM: {
    severity: "broken",
    title: "The body begins with a byte order mark",
    why: "JSON parsers refuse it.",
    rule: "RFC 8259 section 8.1",
    remedy: "Write the file as UTF-8 without a byte order mark.",
  },
  HTTP_NOT_UTF8: {
    severity: "broken",
    title: "The body is not UTF-8",
    why: "JSON parsers refuse it, or read a `kid` that no token has.",
    rule: "RFC 8259 section 8.1",
    remedy: "Encode the body as UTF-8.",
  },
  HTTP_CHUNKED: {
    severity: "advice",
    title: "The response has no Content-Length",
    why: "A truncated response can look complete, and some caches do not store it.",
    rule: "RFC 9112 section 6.2",
    remedy: "Send Content-Length; the size of the set is known.",
  },
  HTTP_COMPRESSED_NO_VARY: {
    severity: "risk",
    title: "A compressed response has no `Vary: Accept-Encoding`",
    why: "A shared cache hands the compressed bytes to verifiers that did not ask for them.",
    rule: "RFC 9110 section 12.5.5",
    remedy: "Send `Vary: Accept-Encoding`, or do not compress: the set is small.",
  },
  HTTP_ADDRESSES_DIFFER: {
    severity: "broken",
    title: "IPv4 and IPv6 do not serve the same JWK Set",
    why: "Which keys a verifier knows depends on its network.",
    rule: "RFC 8305 section 5",
    remedy: "Serve the same set at every address, or take the address out of DNS.",
  },
  HTTP_PLAIN: {
    severity: "broken",
    title: "The URL is plain http",
    why: "An attacker on the network can replace the keys, and verifiers refuse such URLs.",
    rule: "RFC 8414 section 2",
    remedy: "Serve the document over https.",
  },
  TLS_INVALID: {
    severity: "broken",
    title: "The TLS certificate is not accepted",
    why: "No verifier connects.",
    rule: "RFC 9110 section 4.3.4",
    remedy: "Install a certificate for this host name that is valid now, with its intermediate certificates.",
  },
  TLS_EXPIRES: {
    severity: "risk",
    title: "The TLS certificate ends within 14 days",
    why: "From then on no verifier connects.",
    rule: "RFC 5280 section 4.1.2.5",
    remedy: "Renew the certificate, and find out why it was not renewed automatically.",
  },

  // Discovery.
  DISCOVERY_STATUS: {
    severity: "broken",
    title: "The discovery document is not served with status 200",
    why: "Relying parties that are configured with the issuer find no keys.",
    rule: `${discovery} 4.2`,
    remedy: "Answer GET without credentials with 200.",
  },
  DISCOVERY_MEDIA_TYPE: {
    severity: "broken",
    title: "The discovery document is not served as `application/json`",
    why: "Relying parties that check it refuse the document.",
    rule: `${discovery} 4.2`,
    remedy: "Send `Content-Type: application/json`.",
  },
  DISCOVERY_NOT_JSON: {
    severity: "broken",
    title: "The discovery document is not a JSON object",
    why: "Relying parties cannot read it.",
    rule: `${discovery} 4.2`,
    remedy: "Serve the document as a JSON object in UTF-8.",
  },
  DISCOVERY_ISSUER_MISSING: {
    severity: "broken",
    title: "The discovery document has no `issuer`",
    why: "Relying parties compare it with the issuer that they are configured with, and refuse the document.",
    rule: `${discovery} 3`,
    remedy: "Add `issuer`, exactly as it stands in the `iss` of the tokens.",
  },
  DISCOVERY_ISSUER_SLASH: {
    severity: "risk",
    title: "The issuer differs by a slash at its end",
    why: "The comparison is exact: a relying party that has one form refuses the other.",
    rule: `${discovery} 4.3`,
    remedy: "Configure relying parties with the `issuer` of the document, character by character.",
  },
  DISCOVERY_ISSUER_CASE: {
    severity: "broken",
    title: "The issuer differs by upper and lower case",
    why: "The comparison is exact: a relying party that has one form refuses the other.",
    rule: `${discovery} 4.3`,
    remedy: "Use one spelling in the document, in the tokens and at the relying parties.",
  },
  DISCOVERY_ISSUER_PORT: {
    severity: "broken",
    title: "The issuer differs by its port",
    why: "Often the provider does not know about the proxy in front of it. Relying parties refuse the document.",
    rule: `${discovery} 4.3`,
    remedy: "Configure the provider with its public URL.",
  },
  DISCOVERY_ISSUER_SCHEME: {
    severity: "broken",
    title: "The issuer differs by its scheme",
    why: "Often TLS ends at a proxy that the provider does not trust. Relying parties refuse the document.",
    rule: `${discovery} 4.3`,
    remedy: "Configure the provider with its public https URL, or let it trust X-Forwarded-Proto of the proxy.",
  },
  DISCOVERY_ISSUER_OTHER: {
    severity: "broken",
    title: "The document is of another issuer",
    why: "Relying parties refuse it, since any issuer could otherwise speak for any other.",
    rule: `${discovery} 4.3`,
    remedy: "Configure relying parties with the `issuer` of the document, or the provider with its public URL.",
  },
  DISCOVERY_JWKS_URI_MISSING: {
    severity: "broken",
    title: "The discovery document has no `jwks_uri` that is a URL",
    why: "Relying parties find no keys.",
    rule: `${discovery} 3`,
    remedy: "Add `jwks_uri`, the absolute https URL of the JWK Set.",
  },
  DISCOVERY_JWKS_URI_HTTP: {
    severity: "broken",
    title: "`jwks_uri` is not an https URL",
    why: "An attacker on the network can replace the keys, and relying parties refuse such a URL.",
    rule: `${discovery} 3`,
    remedy: "Configure the provider with its public https URL, or let it trust X-Forwarded-Proto of the proxy.",
  },
  DISCOVERY_JWKS_URI_PRIVATE: {
    severity: "broken",
    title: "`jwks_uri` is at a private or local address",
    why: "Relying parties elsewhere cannot reach it, and careful ones refuse to try.",
    rule: `${discovery} 3`,
    remedy: "Configure the provider with its public URL.",
  },
  DISCOVERY_JWKS_URI_SITE: {
    severity: "advice",
    title: "`jwks_uri` is on another site than the issuer",
    why: "That is allowed. Whoever controls the other site controls the logins of this one.",
    rule: `${discovery} 3`,
    remedy: "Serve the JWK Set under the host of the issuer, if that other site is not as well guarded.",
  },
  DISCOVERY_ALG_WITHOUT_KEY: {
    severity: "advice",
    title: "An advertised algorithm has no key",
    why: "A relying party that asks for this algorithm gets no token that it could verify.",
    rule: `${discovery} 3`,
    remedy: "Advertise in `id_token_signing_alg_values_supported` what there are keys for.",
  },
  DISCOVERY_KEY_WITHOUT_ALG: {
    severity: "risk",
    title: "A signing key is of no advertised algorithm",
    why: "Relying parties that go by the list refuse the tokens of this key.",
    rule: `${discovery} 3`,
    remedy: "List the algorithm in `id_token_signing_alg_values_supported` before the key signs.",
  },
  DISCOVERY_RS256_MISSING: {
    severity: "advice",
    title: "RS256 is not among the advertised algorithms",
    why: "An OpenID provider must support it; relying parties may rely on that.",
    rule: `${discovery} 3`,
    remedy: "Add RS256, or accept that such relying parties need to be configured.",
  },

  // Changes over time.
  WATCH_NODES_DISAGREE: {
    severity: "broken",
    title: "The set changes back to earlier versions",
    why: "Nodes behind one address publish different sets, so a token verifies or not by chance.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Give all nodes the same keys, and let none sign with a key that not all publish.",
  },
  WATCH_KID_REUSED: {
    severity: "broken",
    title: "A `kid` names another key than before",
    why: "Verifiers that have the first key cached refuse every token of the second.",
    rule: "RFC 7517 section 4.5",
    remedy: "Never use a `kid` twice. RFC 7638 thumbprints never repeat.",
  },
  WATCH_KEY_WITHDRAWN: {
    severity: "broken",
    title: "A key was withdrawn while its tokens are valid",
    why: "Verifiers that fetch the set now refuse tokens that have not expired.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Keep a key published until the last token that it signed has expired.",
  },
  WATCH_SIGNS_UNANNOUNCED: {
    severity: "broken",
    title: "A key signs before caches can know it",
    why: "Verifiers may keep the old set for max-age plus stale-while-revalidate, and those that do not refetch it fail.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Publish a key for longer than max-age plus stale-while-revalidate before it signs.",
  },
  WATCH_LIFETIME_TOO_LONG: {
    severity: "risk",
    title: "The lifetime is longer than a rotation took",
    why: "A cache may have missed a whole rotation: it still has the old set when the old key is withdrawn.",
    rule: "RFC 9111 section 4.2",
    remedy: "Shorten max-age, or take longer between publishing a key and withdrawing the one before.",
  },
  WATCH_ONLY_GROWS: {
    severity: "advice",
    title: "Keys are added and none is withdrawn",
    why: "Some day the set is larger than verifiers accept, and old keys are trusted for ever.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Withdraw each key when the last token that it signed has expired.",
  },
  WATCH_UNREACHABLE: {
    severity: "risk",
    title: "The set could not be fetched at times",
    why: "Verifiers that had to fetch it then failed.",
    rule: "RFC 9110 section 15.6.4",
    remedy: "Find out which node or proxy fails; a cache in front hides short outages.",
  },
} as const satisfies Readonly<Record<string, Rule>>;

/** The stable code of a finding. */
export type Code = keyof typeof codes;

/** The URL of a rule, if it has one. */
export function ruleUrl(rule: string): string | undefined {
  const [, number, section] = /^RFC (\d+) section ([\d.]+)$/.exec(rule) ?? [];
  if (number !== undefined) return `https://www.rfc-editor.org/rfc/rfc${number}#section-${section}`;
  if (rule.startsWith(discovery)) return "https://openid.net/specs/openid-connect-discovery-1_0.html";
  if (rule.startsWith("OpenID Connect Core")) return "https://openid.net/specs/openid-connect-core-1_0.html";
  return rule.startsWith("Fetch Standard") ? "https://fetch.spec.whatwg.org/#http-cors-protocol" : undefined;
}
