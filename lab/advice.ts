/** What the numbers of a verifier come from, and what its users should set. */
export interface Advice {
  /** How it was set up. */
  readonly setUp: string;
  /** What decides: `owner/repository/blob/tag/path#Lline`, at the newest tag that we could read. */
  readonly line: string;
  readonly says: string;
  readonly set: string;
}

const jwksRsa = "auth0/node-jwks-rsa/blob/v4.1.0/src/wrappers/cache.js#L6";
const aboutJwksRsa =
  "Each kid is kept by itself, for ten minutes (`cacheMaxAge`), whatever `Cache-Control` says. When the time is over, the set is fetched again; if that fails, so does the token.";
const setJwksRsa =
  "Set `cacheMaxAgeFallback`, such as `3_600_000`: then an outage of an hour refuses no token, unless forged kids use up `jwksRequestsPerMinute`. Lower `cacheMaxAge` if a revoked key must not be trusted for ten minutes.";
const limited =
  " `rateLimit: true` with `jwksRequestsPerMinute: 5` counts every kid that is not in the cache. So a few forged kids keep out good tokens: those of a new key, and those whose ten minutes are over, until the minute ends.";

export const advice: Readonly<Record<string, Advice>> = {
  jose: {
    setUp: "`createRemoteJWKSet(url)`, made once",
    line: "panva/jose/blob/v6.2.10/src/jwks/remote.ts#L512",
    says: "The set is kept for ten minutes (`cacheMaxAge`), whatever `Cache-Control` says. An unknown kid makes it ask at once, unless the set is younger than 30 seconds (`cooldownDuration`).",
    set: "Nothing for planned rotations. A copy that is too old is not used, so each outage at the end of the ten minutes refuses tokens: a longer `cacheMaxAge` makes that rarer, and trusts a removed key for longer. Make the key set once, not in the handler of a request.",
  },
  "jwks-rsa + jsonwebtoken": {
    setUp: "`jwksClient({ jwksUri })`, made once, and `getSigningKey(kid)` before `jsonwebtoken.verify`",
    line: jwksRsa,
    says: aboutJwksRsa,
    set: `${setJwksRsa} Each forged kid costs the provider a request. \`rateLimit: true\` ends that, and then a few forged kids keep out good tokens for a minute.`,
  },
  "get-jwks + fast-jwt": {
    setUp: "`buildGetJwks({ providerDiscovery: true })`, with `getPublicKey` as the `key` of `createVerifier`",
    line: "nearform/get-jwks/blob/v11.0.3/src/get-jwks.js#L91",
    says: "Each kid is kept by itself, for a minute (`ttl`), whatever `Cache-Control` says. After that, the discovery document and the set are fetched for the next token. If that fails, or the set has no such key any more, the old key comes back from a second cache, and its minute begins again. So a removed key is trusted for as long as one of its tokens comes each minute, as in an outage.",
    set: "No option ends that: after a key has leaked, call `getJwks.cache.clear()` and then `getJwks.staleCache.clear()`, or restart. With a longer `ttl` it makes fewer requests, and one token in that time keeps a removed key. Each forged kid costs the provider two requests, so limit requests in front of the verifier. Set `issuersWhitelist`.",
  },
  "aws-jwt-verify": {
    setUp: "`JwtVerifier.create({ issuer, audience, jwksUri })`, made once",
    line: "awslabs/aws-jwt-verify/blob/v5.1.1/src/jwk.ts#L433",
    says: "A set has no end: it is fetched again only for a kid that it lacks. After a kid that the new set lacks too, ten seconds pass until the next request.",
    set: "Call `verifier.hydrate().catch(report)` on a timer, such as every ten minutes: a removed key is then no longer trusted. Catch the error: if the set cannot be fetched, the old one stays, and an error that nobody catches ends the process. After a leak, call it at once.",
  },
  "openid-client": {
    setUp:
      "`discovery()` once, then `implicitAuthentication`; ID tokens from the token endpoint are checked by their TLS connection alone, unless `enableNonRepudiationChecks` is called",
    line: "panva/oauth4webapi/blob/v3.8.7/src/index.ts#L3282",
    says: "Its keys are those of oauth4webapi: kept for five minutes, whatever `Cache-Control` says. An unknown kid makes it ask at once, unless the set is younger than a minute.",
    set: "There is nothing to set: the times are constants. Announce keys five minutes ahead, or more. A forged kid in an outage drops the good copy, and good tokens fail before its time is over.",
  },
  oauth4webapi: {
    setUp: "discovery once, then `validateJwtAccessToken` with the same object of the server",
    line: "panva/oauth4webapi/blob/v3.8.7/src/index.ts#L3282",
    says: "The set is kept for five minutes, whatever `Cache-Control` says. An unknown kid makes it ask at once, unless the set is younger than a minute.",
    set: "Keep the object of the server: the keys belong to it. The times are constants. A forged kid in an outage drops the good copy, and good tokens fail before its time is over.",
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
    says: "Its key set is that of jose, with the times of jose: ten minutes (`cacheMaxAge`), and 30 seconds for an unknown kid (`cooldownDuration`).",
    set: "Nothing for planned rotations. `cacheMaxAge` is for how long a removed key is trusted, and how often an outage can hit. The discovery document is fetched again as often, so an outage of that alone refuses tokens, too.",
  },
  "hono/jwk": {
    setUp: '`jwk({ jwks_uri, alg: ["ES256"], verification: { iss, aud, typ: "at+jwt" } })`',
    line: "honojs/hono/blob/v4.13.3/src/utils/jwt/jwt.ts#L231",
    says: "The set is fetched for each request. Nothing is kept.",
    set: "Instead of `jwks_uri`, give `keys` a function that returns the keys of a set which it keeps for some minutes, and the old ones if fetching fails. Keys must then be announced for that long. Otherwise each request of your API waits for the provider, costs it a request, and fails while it is away.",
  },
  "jwksd guard": {
    setUp: "`createBearer({ issuer, audience })`",
    line: "jwksd/jwksd/blob/main/src/verify/relying-party/options.ts#L99",
    says: "The set is kept for `max-age`: five seconds at least, a day at most, and five minutes where none is given. It is fetched again shortly before that time is over, beside a token. An unknown kid makes it ask at once, within a budget: in a flood of them, a new key is refused for up to ten seconds. In an outage, the old set counts for an hour more, unless the provider forbids that (`must-revalidate`, `no-cache`, a shorter `stale-if-error`).",
    set: "Nothing.",
  },
  "jwksd key set": {
    setUp: "`createRemoteKeySet({ jwksUri })` with `jwtVerify` of jose",
    line: "jwksd/jwksd/blob/main/src/verify/relying-party/options.ts#L99",
    says: "As [the guard](jwksd-guard.md), without discovery.",
    set: "Nothing.",
  },
  PyJWT: {
    setUp: "`PyJWKClient(uri)`, made once, and `get_signing_key_from_jwt`",
    line: "jpadilla/pyjwt/blob/2.6.0/jwt/jwks_client.py#L83",
    says: "The set is kept for five minutes (`lifespan`), whatever `Cache-Control` says. Each unknown kid causes a request, without a pause.",
    set: "Limit requests in front of the verifier: each forged kid costs the provider a request. Take 2.7.0 or later, which has `timeout`; with 2.6.0, call `socket.setdefaulttimeout()`: otherwise a server that does not answer stops the thread. A forged kid in an outage drops the good copy, and good tokens fail before its time is over.",
  },
  Authlib: {
    setUp: "the client for Flask, with `server_metadata_url` and `parse_id_token`",
    line: "lepture/authlib/blob/v1.2.0/authlib/integrations/base_client/sync_openid.py#L9",
    says: "The set is kept with the metadata, without an end. It is fetched again only for a kid that it lacks.",
    set: "Call `client.fetch_jwk_set(force=True)` on a timer, and catch its errors: the old set then stays. Otherwise a removed key is trusted until a token has an unknown kid. Limit requests in front: each forged kid costs the provider one.",
  },
  "go-oidc": {
    setUp: "`NewProvider` and `Verifier`, once",
    line: "coreos/go-oidc/blob/v2.1.0/jwks.go#L123",
    says: "The set is kept for `max-age`, and used after that for kids that it has. An unknown kid makes it ask only in the last 30 seconds of that time or later.",
    set: "This is the old version 2, as Debian has it: here, a key must be announced for `max-age`. Version 3 looks up an unknown kid at once. It keeps the set without an end as well, and each forged kid costs a request: limit requests in front of it. With either, a removed key is trusted until a token names a kid that the copy lacks: restart after a leak.",
  },
  "ruby-jwt": {
    setUp: "`JWT.decode` with the loader that its README shows",
    line: "jwt/ruby-jwt/blob/v2.5.0/lib/jwt/jwk/key_finder.rb#L30",
    says: "ruby-jwt keeps nothing: the loader does. That of the README keeps the set without an end, and looks again for an unknown kid if the set is older than five minutes.",
    set: "Let the loader fetch the set again after some minutes, and keep the one that it has if that fails, for a time that you bound. Otherwise a removed key is trusted until a token names a kid that the copy lacks. The loader of the README drops a copy of more than five minutes before it fetches: a forged kid in an outage then refuses good tokens.",
  },
  mod_auth_openidc: {
    setUp:
      "`AuthType oauth20` with `OIDCOAuthVerifyJwksUri`, and `Require claim` for `iss` and `aud`, in an Apache of one process",
    line: "OpenIDC/mod_auth_openidc/blob/v2.4.12.3/src/metadata.c#L644",
    says: "The set is kept for an hour (`OIDCJWKSRefreshInterval`), whatever `Cache-Control` says. Each unknown kid causes a request, without a pause; if that fails, the copy stays until its hour is over. After that, the next token makes it fetch the set. While that fails, each token causes a request and is refused.",
    set: "Nothing for planned rotations. `OIDCJWKSRefreshInterval` is for how long a removed key is trusted, and how often an outage can hit: `300` is the shortest. After a leak, stop and start Apache: that empties the default cache, which is shared memory. Set `OIDCHTTPTimeoutLong 5`: otherwise a server that does not answer holds each token that needs the set for a minute. Limit requests in front of Apache: each forged kid costs the provider one. By its source, version 2.4.20 asks for an unknown kid once a minute at most, and so can refuse a new key for a minute.",
  },
};
