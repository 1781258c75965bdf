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
  "jwks-rsa keeps each key separately for ten minutes (`cacheMaxAge`), regardless of `Cache-Control`. After that, it refetches the set. If that fails, it rejects the token.";
const setJwksRsa =
  "Set `cacheMaxAgeFallback`. With `3_600_000`, no token is rejected in a one-hour outage, unless forged kids use up `jwksRequestsPerMinute`. If ten minutes is too long to trust a revoked key, lower `cacheMaxAge`.";
const limited =
  " `rateLimit: true` with `jwksRequestsPerMinute: 5` counts every kid that is not in the cache. So after a few forged kids, it also rejects valid tokens until the minute ends, if their key is new or its ten minutes are over.";

export const advice: Readonly<Record<string, Advice>> = {
  jose: {
    setUp: "`createRemoteJWKSet(url)`, created once",
    line: "panva/jose/blob/v6.2.10/src/jwks/remote.ts#L512",
    says: "jose keeps the set for ten minutes (`cacheMaxAge`), regardless of `Cache-Control`. An unknown kid causes an immediate refetch, unless the set is less than 30 seconds old (`cooldownDuration`).",
    set: "You do not need to set anything for planned rotations. jose does not use a stale set, so during an outage it rejects tokens once the ten minutes are over. With a longer `cacheMaxAge`, fewer outages have an effect, but a removed key is trusted for longer. Create the key set once, not in a request handler.",
  },
  "jwks-rsa + jsonwebtoken": {
    setUp: "`jwksClient({ jwksUri })`, created once, and `getSigningKey(kid)` before `jsonwebtoken.verify`",
    line: jwksRsa,
    says: aboutJwksRsa,
    set: `${setJwksRsa} Every forged kid causes a request to the provider. \`rateLimit: true\` prevents that, but then a few forged kids cause valid tokens to be rejected for a minute.`,
  },
  "get-jwks + fast-jwt": {
    setUp: "`buildGetJwks({ providerDiscovery: true })`, with `getPublicKey` as the `key` option of `createVerifier`",
    line: "nearform/get-jwks/blob/v11.0.3/src/get-jwks.js#L91",
    says: "get-jwks keeps each key separately for a minute (`ttl`), regardless of `Cache-Control`. After that, it fetches the discovery document and the set for the next token. If that fails, or if the set no longer has the key, get-jwks takes the old key from a second cache, and that key's minute starts again. So a removed key is trusted for as long as at least one of its tokens arrives every minute, and so is any key during an outage.",
    set: "No option prevents that. After a leak, call `getJwks.cache.clear()` and then `getJwks.staleCache.clear()`, or restart the verifier. With a longer `ttl`, get-jwks sends fewer requests, but then a single token in that longer time is enough to keep a removed key trusted. Every forged kid causes two requests to the provider, so rate-limit requests to the verifier. Set `issuersWhitelist`.",
  },
  "aws-jwt-verify": {
    setUp: "`JwtVerifier.create({ issuer, audience, jwksUri })`, created once",
    line: "awslabs/aws-jwt-verify/blob/v5.1.1/src/jwk.ts#L433",
    says: "A set never expires. aws-jwt-verify refetches it only for a kid that is not in the set. If the new set does not have the kid either, it waits at least ten seconds before the next request.",
    set: "Call `verifier.hydrate().catch(report)` on a timer, such as every ten minutes, so that a removed key is no longer trusted. If the set cannot be fetched, the old set stays in use; catch the error, because an uncaught error crashes the process. After a leak, call `hydrate` immediately.",
  },
  "openid-client": {
    setUp:
      "`discovery()` once, then `implicitAuthentication` (unless you call `enableNonRepudiationChecks`, openid-client trusts ID tokens from the token endpoint because of the TLS connection alone)",
    line: "panva/oauth4webapi/blob/v3.8.7/src/index.ts#L3282",
    says: "openid-client uses oauth4webapi's key set, which keeps the set for five minutes, regardless of `Cache-Control`. An unknown kid causes an immediate refetch, unless the set is less than a minute old.",
    set: "You cannot change these times, because they are constants. Announce keys at least five minutes in advance. During an outage, a forged kid causes the cached set to be dropped, so valid tokens are rejected before the five minutes are over.",
  },
  oauth4webapi: {
    setUp: "discovery once, then `validateJwtAccessToken` with the same server object",
    line: "panva/oauth4webapi/blob/v3.8.7/src/index.ts#L3282",
    says: "oauth4webapi keeps the set for five minutes, regardless of `Cache-Control`. An unknown kid causes an immediate refetch, unless the set is less than a minute old.",
    set: "Reuse the server object, because the keys are cached in it. You cannot change these times, because they are constants. During an outage, a forged kid causes the cached set to be dropped, so valid tokens are rejected before the five minutes are over.",
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
    says: "express-oauth2-jwt-bearer uses jose's key set with jose's default times: ten minutes (`cacheMaxAge`), and 30 seconds for an unknown kid (`cooldownDuration`).",
    set: "You do not need to set anything for planned rotations. `cacheMaxAge` determines how long a removed key is trusted, and how often an outage has an effect. The discovery document is refetched just as often, so tokens are also rejected if only the discovery document is unavailable.",
  },
  "hono/jwk": {
    setUp: '`jwk({ jwks_uri, alg: ["ES256"], verification: { iss, aud, typ: "at+jwt" } })`',
    line: "honojs/hono/blob/v4.13.3/src/utils/jwt/jwt.ts#L231",
    says: "hono/jwk fetches the set for every request. It does not cache anything.",
    set: "Instead of `jwks_uri`, set `keys` to a function that keeps the set for a few minutes and returns the old keys if fetching fails. Keys must then be announced for that long. Otherwise, every request to your API causes a request to the provider, waits for it, and fails while the provider is unavailable.",
  },
  "jwksd guard": {
    setUp: "`createBearerGuard({ issuer, audience })`",
    line: "jwksd/jwksd/blob/main/src/verify/relying-party/options.ts#L99",
    says: "The guard keeps the set for its `max-age` (at least five seconds and at most a day), or for five minutes if the header is missing. Shortly before that time is over, the guard refetches the set in the background. An unknown kid causes an immediate refetch, within a budget. In a flood of unknown kids, a new key is therefore rejected for up to ten seconds. In an outage, the guard uses the old set for another hour, unless the provider forbids that (`must-revalidate`, `no-cache`, a shorter `stale-if-error`).",
    set: "You do not need to set anything.",
  },
  "jwksd key set": {
    setUp: "`createRemoteKeySet({ jwksUri })` with jose's `jwtVerify`",
    line: "jwksd/jwksd/blob/main/src/verify/relying-party/options.ts#L99",
    says: "The key set behaves like [the guard](jwksd-guard.md), but without discovery.",
    set: "You do not need to set anything.",
  },
  PyJWT: {
    setUp: "`PyJWKClient(uri)`, created once, and `get_signing_key_from_jwt`",
    line: "jpadilla/pyjwt/blob/2.6.0/jwt/jwks_client.py#L83",
    says: "PyJWT keeps the set for five minutes (`lifespan`), regardless of `Cache-Control`. Every unknown kid causes an immediate request.",
    set: "Rate-limit requests to the verifier, because every forged kid causes a request to the provider. Use 2.7.0 or later, which has `timeout`. With 2.6.0, call `socket.setdefaulttimeout()`; otherwise, a server that does not respond blocks the thread. During an outage, a forged kid causes the cached set to be dropped, so valid tokens are rejected before the five minutes are over.",
  },
  Authlib: {
    setUp: "Authlib's Flask client, with `server_metadata_url` and `parse_id_token`",
    line: "lepture/authlib/blob/v1.2.0/authlib/integrations/base_client/sync_openid.py#L9",
    says: "Authlib keeps the set with the metadata, and the set never expires. Authlib refetches it only for a kid that is not in the set.",
    set: "Call `client.fetch_jwk_set(force=True)` on a timer, and catch its errors, so that the old set stays in use if the request fails. Otherwise, a removed key is trusted until a token has an unknown kid. Rate-limit requests to the verifier, because every forged kid causes a request to the provider.",
  },
  "go-oidc": {
    setUp: "`NewProvider` and `Verifier`, once",
    line: "coreos/go-oidc/blob/v2.1.0/jwks.go#L123",
    says: "go-oidc caches the set for its `max-age`, and even after that, it uses the set for the kids in it. An unknown kid causes a refetch only in the last 30 seconds of that time, or later.",
    set: "Debian has the old version 2. With that version, a key must be announced for the whole `max-age`. Version 3 refetches immediately for an unknown kid. Its set never expires either, and every forged kid causes a request, so rate-limit requests to the verifier. With both versions, a removed key is trusted until a token has a kid that is not in the cached set, so restart the verifier after a leak.",
  },
  "ruby-jwt": {
    setUp: "`JWT.decode` with the loader from its README",
    line: "jwt/ruby-jwt/blob/v2.5.0/lib/jwt/jwk/key_finder.rb#L30",
    says: "ruby-jwt itself does not cache the set, but the loader does. In the README's loader, the set never expires. The loader refetches it for an unknown kid if the set is more than five minutes old.",
    set: "Write a loader that refetches the set after a few minutes and, if that fails, keeps the old set for a limited time. Otherwise, a removed key is trusted until a token has a kid that is not in the cached set. The README's loader drops a set that is more than five minutes old before it fetches the new set. So during an outage, one forged kid causes valid tokens to be rejected.",
  },
  mod_auth_openidc: {
    setUp:
      "`AuthType oauth20` with `OIDCOAuthVerifyJwksUri`, and `Require claim` for `iss` and `aud`, in an Apache server with one process",
    line: "OpenIDC/mod_auth_openidc/blob/v2.4.12.3/src/metadata.c#L644",
    says: "mod_auth_openidc keeps the set for an hour (`OIDCJWKSRefreshInterval`), regardless of `Cache-Control`. Every unknown kid causes an immediate request. If that request fails, the cached set stays in use until its hour is over. After that, the next token causes a refetch. For as long as the refetch fails, every token causes a request and is rejected.",
    set: "You do not need to set anything for planned rotations. `OIDCJWKSRefreshInterval` (at least `300`) determines how long a removed key is trusted, and how often an outage has an effect. After a leak, stop and start Apache to empty the default cache, which is in shared memory. Set `OIDCHTTPTimeoutLong 5`; otherwise, a server that does not respond delays every token that needs the set by a minute. Rate-limit requests to Apache, because every forged kid causes a request to the provider. According to its source, version 2.4.20 refetches at most once a minute for unknown kids, so it can reject a new key for a minute.",
  },
};
