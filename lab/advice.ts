/** Explanation of a verifier's numbers, and advice for its users. */
export interface Advice {
  /** Setup in the lab. */
  readonly setUp: string;
  /** The deciding line of source: `owner/repository/blob/tag/path#Lline`, at the latest tag that we could read. */
  readonly line: string;
  /** Behavior of the verifier. */
  readonly says: string;
  /** Settings that its users should choose. */
  readonly set: string;
}

const jwksRsa = "auth0/node-jwks-rsa/blob/v4.1.0/src/wrappers/cache.js#L6";
const aboutJwksRsa =
  "Each kid is kept separately, for ten minutes (`cacheMaxAge`), regardless of `Cache-Control`. After that, the set is refetched; if that fails, the token is refused.";
const setJwksRsa =
  "Set `cacheMaxAgeFallback`, such as `3_600_000`: then no token is refused in an outage of an hour, unless forged kids use up `jwksRequestsPerMinute`. Lower `cacheMaxAge` if a revoked key must not be trusted for ten minutes.";
const limited =
  " `rateLimit: true` with `jwksRequestsPerMinute: 5` counts every kid that is not in the cache. So a few forged kids keep valid tokens out until the minute ends: tokens signed with a new key, and tokens whose ten minutes are over.";

export const advice: Readonly<Record<string, Advice>> = {
  jose: {
    setUp: "`createRemoteJWKSet(url)`, created once",
    line: "panva/jose/blob/v6.2.10/src/jwks/remote.ts#L512",
    says: "The set is kept for ten minutes (`cacheMaxAge`), regardless of `Cache-Control`. An unknown kid causes an immediate refetch, unless the set is less than 30 seconds old (`cooldownDuration`).",
    set: "Nothing for planned rotations. A stale set is not used, so tokens are refused in each outage at the end of the ten minutes: with a longer `cacheMaxAge`, this is rarer, and a removed key is trusted for longer. Create the key set once, not in a request handler.",
  },
  "jwks-rsa + jsonwebtoken": {
    setUp: "`jwksClient({ jwksUri })`, created once, and `getSigningKey(kid)` before `jsonwebtoken.verify`",
    line: jwksRsa,
    says: aboutJwksRsa,
    set: `${setJwksRsa} Each forged kid costs the provider a request. \`rateLimit: true\` prevents that, but then a few forged kids keep valid tokens out for a minute.`,
  },
  "get-jwks + fast-jwt": {
    setUp: "`buildGetJwks({ providerDiscovery: true })`, with `getPublicKey` as the `key` option of `createVerifier`",
    line: "nearform/get-jwks/blob/v11.0.3/src/get-jwks.js#L91",
    says: "Each kid is kept separately, for a minute (`ttl`), regardless of `Cache-Control`. After that, the discovery document and the set are fetched for the next token. If that fails, or the set no longer has the key, the old key comes back from a second cache, and its minute starts again. So a removed key is trusted for as long as one of its tokens arrives each minute, as in an outage.",
    set: "No option prevents that: after a leak, call `getJwks.cache.clear()` and then `getJwks.staleCache.clear()`, or restart. With a longer `ttl`, it sends fewer requests, and one token in that time is enough to keep a removed key. Each forged kid costs the provider two requests, so limit requests in front of the verifier. Set `issuersWhitelist`.",
  },
  "aws-jwt-verify": {
    setUp: "`JwtVerifier.create({ issuer, audience, jwksUri })`, created once",
    line: "awslabs/aws-jwt-verify/blob/v5.1.1/src/jwk.ts#L433",
    says: "A set never expires: it is refetched only for a kid that it lacks. If the new set lacks the kid too, the next request is sent after ten seconds at the earliest.",
    set: "Call `verifier.hydrate().catch(report)` on a timer, such as every ten minutes: a removed key is then no longer trusted. Catch the error: if the set cannot be fetched, the old one stays, and an uncaught error ends the process. After a leak, call it immediately.",
  },
  "openid-client": {
    setUp:
      "`discovery()` once, then `implicitAuthentication`; ID tokens from the token endpoint are trusted because of their TLS connection alone, unless `enableNonRepudiationChecks` is called",
    line: "panva/oauth4webapi/blob/v3.8.7/src/index.ts#L3282",
    says: "It uses the key set of oauth4webapi: the set is kept for five minutes, regardless of `Cache-Control`. An unknown kid causes an immediate refetch, unless the set is less than a minute old.",
    set: "There is nothing to set: the times are constants. Announce keys at least five minutes ahead. A forged kid during an outage drops the cached set, so valid tokens are refused before its five minutes are over.",
  },
  oauth4webapi: {
    setUp: "discovery once, then `validateJwtAccessToken` with the same server object",
    line: "panva/oauth4webapi/blob/v3.8.7/src/index.ts#L3282",
    says: "The set is kept for five minutes, regardless of `Cache-Control`. An unknown kid causes an immediate refetch, unless the set is less than a minute old.",
    set: "Keep the server object: the keys belong to it. The times are constants. A forged kid during an outage drops the cached set, so valid tokens are refused before its five minutes are over.",
  },
  "jwks-rsa + express-jwt": {
    setUp: "`expressJwtSecret({ cache: true, rateLimit: true, jwksRequestsPerMinute: 5, jwksUri })`",
    line: jwksRsa,
    says: aboutJwksRsa + limited,
    set: setJwksRsa,
  },
  "jwks-rsa + passport-jwt": {
    setUp: "`passportJwtSecret({ cache: true, rateLimit: true, jwksRequestsPerMinute: 5, jwksUri })`",
    line: jwksRsa,
    says: aboutJwksRsa + limited,
    set: setJwksRsa,
  },
  "express-oauth2-jwt-bearer": {
    setUp: "`auth({ issuerBaseURL, audience })`",
    line: "auth0/node-oauth2-jwt-bearer/blob/v1.10.0/packages/access-token-jwt/src/jwt-verifier.ts#L315",
    says: "It uses jose's key set, with jose's times: ten minutes (`cacheMaxAge`), and 30 seconds for an unknown kid (`cooldownDuration`).",
    set: "Nothing for planned rotations. `cacheMaxAge` determines how long a removed key is trusted, and how often an outage has an effect. The discovery document is refetched as often, so tokens are also refused if only that is unavailable.",
  },
  "hono/jwk": {
    setUp: '`jwk({ jwks_uri, alg: ["ES256"], verification: { iss, aud, typ: "at+jwt" } })`',
    line: "honojs/hono/blob/v4.13.3/src/utils/jwt/jwt.ts#L231",
    says: "The set is fetched for each request. Nothing is kept.",
    set: "Instead of `jwks_uri`, pass `keys` a function that keeps the set for a few minutes and returns the old keys if fetching fails. Keys must then be announced for that long. Otherwise, each request to your API waits for the provider, costs it a request, and fails while it is unavailable.",
  },
  "jwksd guard": {
    setUp: "`createBearer({ issuer, audience })`",
    line: "jwksd/jwksd/blob/main/src/verify/relying-party/options.ts#L99",
    says: "The set is kept for `max-age`: at least five seconds, at most a day, and five minutes if the header is missing. It is refetched in the background shortly before that time is over. An unknown kid causes an immediate refetch, within a budget: in a flood of unknown kids, a new key is refused for up to ten seconds. In an outage, the old set is used for another hour, unless the provider forbids that (`must-revalidate`, `no-cache`, a shorter `stale-if-error`).",
    set: "Nothing.",
  },
  "jwksd key set": {
    setUp: "`createRemoteKeySet({ jwksUri })` with jose's `jwtVerify`",
    line: "jwksd/jwksd/blob/main/src/verify/relying-party/options.ts#L99",
    says: "Like [the guard](jwksd-guard.md), without discovery.",
    set: "Nothing.",
  },
  PyJWT: {
    setUp: "`PyJWKClient(uri)`, created once, and `get_signing_key_from_jwt`",
    line: "jpadilla/pyjwt/blob/2.6.0/jwt/jwks_client.py#L83",
    says: "The set is kept for five minutes (`lifespan`), regardless of `Cache-Control`. Each unknown kid causes a request, without a pause.",
    set: "Limit requests in front of the verifier: each forged kid costs the provider a request. Use 2.7.0 or later, which has `timeout`; with 2.6.0, call `socket.setdefaulttimeout()`, or a server that does not respond blocks the thread. A forged kid during an outage drops the cached set, so valid tokens are refused before its five minutes are over.",
  },
  Authlib: {
    setUp: "its Flask client, with `server_metadata_url` and `parse_id_token`",
    line: "lepture/authlib/blob/v1.2.0/authlib/integrations/base_client/sync_openid.py#L9",
    says: "The set is kept with the metadata, and never expires. It is refetched only for a kid that it lacks.",
    set: "Call `client.fetch_jwk_set(force=True)` on a timer and catch its errors: the old set then stays. Otherwise, a removed key is trusted until a token has an unknown kid. Limit requests in front of the verifier: each forged kid costs the provider a request.",
  },
  "go-oidc": {
    setUp: "`NewProvider` and `Verifier`, once",
    line: "coreos/go-oidc/blob/v2.1.0/jwks.go#L123",
    says: "The set is kept for `max-age`, and used after that for the kids that it has. An unknown kid causes a refetch only in the last 30 seconds of that time or later.",
    set: "This is the old version 2, as in Debian: with it, a key must be announced for `max-age`. Version 3 refetches for an unknown kid immediately. Its set never expires either, and each forged kid costs a request: limit requests in front of it. With both versions, a removed key is trusted until a token names a kid that the cached set lacks: restart after a leak.",
  },
  "ruby-jwt": {
    setUp: "`JWT.decode` with the loader from its README",
    line: "jwt/ruby-jwt/blob/v2.5.0/lib/jwt/jwk/key_finder.rb#L30",
    says: "ruby-jwt keeps nothing; the loader does. In the README's loader, the set never expires, and is refetched for an unknown kid if it is more than five minutes old.",
    set: "Write a loader that refetches the set after a few minutes and, if that fails, keeps the old one for a limited time. Otherwise, a removed key is trusted until a token names a kid that the cached set lacks. The README's loader drops a set of more than five minutes before it fetches: during an outage, one forged kid then causes valid tokens to be refused.",
  },
  mod_auth_openidc: {
    setUp:
      "`AuthType oauth20` with `OIDCOAuthVerifyJwksUri`, and `Require claim` for `iss` and `aud`, in an Apache with one process",
    line: "OpenIDC/mod_auth_openidc/blob/v2.4.12.3/src/metadata.c#L644",
    says: "The set is kept for an hour (`OIDCJWKSRefreshInterval`), regardless of `Cache-Control`. Each unknown kid causes a request, without a pause; if that fails, the cached set stays until its hour is over. After that, the next token causes a refetch. While that fails, each token causes a request and is refused.",
    set: "Nothing for planned rotations. `OIDCJWKSRefreshInterval` determines how long a removed key is trusted, and how often an outage has an effect: the minimum is `300`. After a leak, stop and start Apache: that empties the default cache, which is shared memory. Set `OIDCHTTPTimeoutLong 5`: otherwise, a server that does not respond delays each token that needs the set by a minute. Limit requests in front of Apache: each forged kid costs the provider a request. According to its source, version 2.4.20 refetches at most once a minute for unknown kids, so it can refuse a new key for a minute.",
  },
};
