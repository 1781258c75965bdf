import { createHash } from "node:crypto";
import { type PrivateJwk, ecKey, rsaKey, withoutPrivate } from "../support/keys.ts";
import type { HeaderLine, WireRequest } from "../support/wire.ts";
import { type Signature, compact, hmac, noSignature, signature } from "../token/compact.ts";
import { type Setup, audience } from "./guards.ts";

// Requests to an API, and the expected responses, as data.

/** The provider's private keys, by kid. */
export const providerKeys: Readonly<Record<string, { readonly alg: string; readonly jwk: PrivateJwk }>> = {
  "ec-1": { alg: "ES256", jwk: ecKey("bearer ec-1") },
  "rsa-1": { alg: "RS256", jwk: rsaKey() },
};
/** The other provider's private keys. The kid is the same, the key is not. */
export const otherKeys = { "ec-1": { alg: "ES256", jwk: ecKey("bearer other") } } as const;
const clientKey = ecKey("bearer client");
const strangerKey = ecKey("bearer stranger");

/** Bytes that are a certificate only as far as their first byte shows. */
const certificateDer = "0: a certificate of the client";
export const certificatePem = `-----BEGIN CERTIFICATE-----\n${Buffer.from(certificateDer).toString("base64")}\n-----END CERTIFICATE-----\n`;
const x5t = createHash("sha256").update(certificateDer).digest("base64url");

/** Claims, header and signing key of a token. Members that are undefined are omitted. */
interface TokenParts {
  readonly claims?: object;
  readonly header?: object;
  readonly kid?: string;
  readonly key?: PrivateJwk;
}

const nowSeconds = (): number => Math.floor(Date.now() / 1000);

/** Returns an access token, valid except for the given parts. */
export function accessToken({ issuer }: Pick<Setup, "issuer">, { claims, header, kid = "ec-1", key }: TokenParts = {}) {
  const { alg, jwk } = providerKeys[kid] ?? { alg: "ES256", jwk: strangerKey };
  const now = nowSeconds();
  const all = {
    iss: issuer,
    aud: audience,
    sub: "alice",
    client_id: "app",
    iat: now,
    exp: now + 300,
    jti: "1",
    ...claims,
  };
  return compact({ alg, kid, typ: "at+jwt", ...header }, all, signature(alg, key ?? jwk));
}

const thumbprint = ({ crv, kty, x, y }: PrivateJwk): string =>
  createHash("sha256").update(JSON.stringify({ crv, kty, x, y })).digest("base64url");

let proofs = 0;

/** Returns a proof for a request, valid except for the given parts. @see RFC 9449 section 4.2 */
export function dpopProof(token: string, path: string, { claims, header, key = clientKey }: TokenParts = {}): string {
  const ath = createHash("sha256").update(token).digest("base64url");
  const all = { jti: `proof-${(proofs += 1)}`, htm: "GET", htu: audience + path, iat: nowSeconds(), ath, ...claims };
  return compact({ typ: "dpop+jwt", alg: "ES256", jwk: withoutPrivate(key), ...header }, all, signature("ES256", key));
}

/** Response that the guard must send. */
export type Expected =
  | { readonly status: 200; readonly body?: string }
  | {
      readonly status: 400 | 401 | 403;
      /** `WWW-Authenticate`. */
      readonly challenge: string;
      /** Detail in the body, if the challenge has no description. */
      readonly detail?: string;
      readonly nonce?: true;
    }
  | { readonly status: 503; readonly retryAfter: string };

/** One request, the requirement that it tests, and the expected response. */
export interface Row {
  /** Section of an RFC, such as `6750 3`, or of OpenID Connect. */
  readonly source: string;
  readonly name: string;
  readonly request: (setup: Setup) => WireRequest;
  readonly expected: Expected;
  /** Whether the request is sent twice. Only the second response is checked. */
  readonly again?: true;
  /** Whether the standard allows an API to let the request through. */
  readonly lenient?: true;
  /** Whether a handler refuses the request. Its framework then sets the length and may change the media type. */
  readonly byHandler?: true;
}

const bearer = (path: string, token: string, more: readonly HeaderLine[] = []): WireRequest => ({
  target: path,
  headers: [["Authorization", `Bearer ${token}`], ...more],
});
const sent = (authorization: string | undefined, target = "/plain"): WireRequest => ({
  target,
  headers: authorization === undefined ? [] : [["Authorization", authorization]],
});
const dpop = (path: string, token: string, proof: string): WireRequest => ({
  target: path,
  headers: [
    ["Authorization", `DPoP ${token}`],
    ["DPoP", proof],
  ],
});

const algs = 'algs="ES256 ES384 ES512 RS256 RS384 RS512 PS256 PS384 PS512 EdDSA Ed25519"';
const ok: Expected = { status: 200 };
/** The realm of all challenges. */
const realm = `realm="${audience}"`;
const none: Expected = { status: 401, challenge: `Bearer ${realm}` };
const challenged = (parameters: string): Expected => ({ status: 401, challenge: `Bearer ${realm}, ${parameters}` });
const badRequest = (description: string): Expected => ({
  status: 400,
  challenge: `Bearer ${realm}, error="invalid_request", error_description="${description}"`,
});
const invalid = (description: string): Expected =>
  challenged(`error="invalid_token", error_description="${description}"`);
const noDpop: Expected = { status: 401, challenge: `Bearer ${realm}, DPoP ${realm}, ${algs}` };
const badDpop = (error: string, description: string): Expected => ({
  status: 401,
  challenge: `DPoP ${realm}, error="${error}", error_description="${description}", ${algs}`,
});
const badProof = (description: string): Expected => badDpop("invalid_dpop_proof", description);

const oneToken = badRequest("the Authorization header must consist of a scheme, a space and one token");
const queryToken = badRequest("tokens in the query are rejected; send one token, in the header");
const malformed = invalid("the token is not a well-formed signed JWT");
const otherType = invalid("the token's typ is not at+jwt; send an access token");
const untrusted = invalid("the token's issuer is not trusted here");
const wrongSignature = invalid("the signature is not valid for the token and its key");
const noSuchAlg = invalid("the token's alg is not allowed");
const missing = (claim: string): Expected => invalid(`claim '${claim}' is missing`);
const unexpected = (claim: string): Expected => invalid(`claim '${claim}' does not have the expected value`);
const idToken = invalid("the token is an ID token; send an access token");
const noProof = badProof("the proof is not a single JWT with typ dpop+jwt that is signed with its own jwk");

/** Returns a token that is bound to the key of `dpopProof`. */
export const boundToken = (setup: Pick<Setup, "issuer">, more: TokenParts = {}): string =>
  accessToken(setup, { ...more, claims: { cnf: { jkt: thumbprint(clientKey) }, ...more.claims } });

/** Marks a request that the standard allows an API to let through. */
const optional = (row: Row): Row => ({ ...row, lenient: true });
const byHandler = (row: Row): Row => ({ ...row, byHandler: true });

const row = (source: string, name: string, request: Row["request"], expected: Expected): Row => ({
  source,
  name,
  request,
  expected,
});
/** Creates a row for a token that is sent to a path. */
const tokenRow = (source: string, name: string, parts: TokenParts, expected: Expected, path = "/plain"): Row =>
  row(source, name, (setup) => bearer(path, accessToken(setup, parts)), expected);
const claimRow = (source: string, name: string, claims: object, expected: Expected, path?: string): Row =>
  tokenRow(source, name, { claims }, expected, path);
const headerRow = (source: string, name: string, header: object, expected: Expected, path?: string): Row =>
  tokenRow(source, name, { header }, expected, path);
/** Creates a row for a request without a valid token. */
const formRow = (name: string, request: WireRequest, expected: Expected, source = "6750 3"): Row =>
  row(source, name, () => request, expected);
/** Returns a request with a bound token and its proof, valid except for the given parts. */
function proven(setup: Setup, path: string, parts: TokenParts = {}, token: string = boundToken(setup)): WireRequest {
  return dpop(path, token, dpopProof(token, path, parts));
}
const proofRow = (name: string, parts: TokenParts, expected: Expected, path = "/dpop"): Row =>
  row("9449 4.3", name, (setup) => proven(setup, path, parts), expected);

const forms: readonly Row[] = [
  formRow("no token", sent(undefined), none),
  formRow("an empty Authorization", sent(""), none),
  formRow("another scheme", sent("Basic YWxpY2U6c2VjcmV0"), none),
  formRow("a scheme that is the name of an object's own property", sent("constructor abc"), none),
  formRow("a scheme that only begins with Bearer", sent("Bearer-x abc def"), none),
  formRow("a DPoP token without DPoP support", sent("DPoP abc"), none),
  formRow("a scheme without a token", sent("Bearer"), oneToken),
  formRow("two tokens after one scheme", sent("Bearer abc def"), oneToken),
  formRow("tokens with a comma", sent("Bearer abc,def"), oneToken),
  formRow("a token with quotes", sent('Bearer "abc"'), oneToken),
  formRow("a token in parameters", sent("Bearer token=abc, realm=def"), oneToken),
  formRow("a tab instead of a space", sent("Bearer\tabc"), oneToken),
  formRow("a token that is not a JWT", sent("Bearer abc"), malformed),
  formRow("a token with padding", sent("Bearer YQ.YQ.YQ=="), malformed),
  formRow("a token in the query", sent(undefined, "/plain?access_token=abc"), none, "6750 2.3"),
  row(
    "6750 2",
    "a token in the header and one in the query",
    (setup) => bearer(`/plain?a=1&access_token=${accessToken(setup)}`, accessToken(setup)),
    queryToken,
  ),
  row(
    "6750 2",
    "a token in the header and one in the query with an escaped name",
    (setup) => bearer("/plain?a=1&access%5Ftoken=abc", accessToken(setup)),
    queryToken,
  ),
  row(
    "6750 2",
    "two Authorization headers, the valid one first",
    (setup) => bearer("/plain", accessToken(setup), [["Authorization", "Bearer abc"]]),
    oneToken,
  ),
  row(
    "6750 2",
    "two Authorization headers, the valid one last",
    (setup) => ({
      target: "/plain",
      headers: [
        ["Authorization", "Basic YTpi"],
        ["Authorization", `Bearer ${accessToken(setup)}`],
      ],
    }),
    none,
  ),
  row("9110 11.1", "a scheme in lower case", (setup) => sent(`bearer ${accessToken(setup)}`), ok),
  row("9110 11.4", "two spaces after the scheme", (setup) => sent(`Bearer  ${accessToken(setup)}`), ok),
  ...(["HEAD", "POST", "DELETE"] as const).flatMap((method): Row[] => [
    row(
      "6750 2.1",
      `${method} with a token`,
      (setup) => ({ ...bearer("/plain", accessToken(setup), [["Content-Length", "0"]]), method }),
      ok,
    ),
    row(
      "6750 3",
      `${method} without a token`,
      () => ({ method, target: "/plain", headers: [["Content-Length", "0"]] }),
      none,
    ),
  ]),
];

const ecOne = ecKey("bearer ec-1");
const publicText = JSON.stringify(withoutPrivate(ecOne));
/** Creates a request with a token for the first key. Its alg, signature and exp can be anything. */
const withToken =
  (alg: string, sign: Signature, exp = `"exp":${nowSeconds() + 3_600}`): Row["request"] =>
  ({ issuer }) => {
    const claims = JSON.stringify({ iss: issuer, aud: audience, sub: "alice", exp: 0 }).replace('"exp":0', exp);
    return bearer("/plain", compact({ alg, kid: "ec-1", typ: "at+jwt" }, claims, sign));
  };

/** Returns the claims with which two providers mark a token's type. */
const markedTokens = (cognito: string, keycloak: string): readonly (readonly [provider: string, claims: object])[] => [
  ["Cognito", { token_use: cognito }],
  ["Keycloak", { typ: keycloak }],
];

const ago = (seconds: number): number => nowSeconds() - seconds;
const tokens: readonly Row[] = [
  tokenRow("9068 4", "a valid token", {}, ok),
  tokenRow("9068 4", "a valid RS256 token", { kid: "rsa-1" }, ok),
  claimRow("7519 4.1.3", "one of several audiences", { aud: ["x", audience] }, ok),
  headerRow("7515 4.1.9", "typ as a full media type", { typ: "application/at+jwt" }, ok),
  claimRow("7519 4.1.4", "an expired token", { exp: ago(1) }, invalid("the token has expired")),
  claimRow("7519 4.1.4", "no exp", { exp: undefined }, missing("exp")),
  claimRow("7519 2", "exp as a string", { exp: "9999999999" }, unexpected("exp")),
  claimRow("7519 4.1.5", "a token that is not yet valid", { nbf: ago(-3_600) }, unexpected("nbf")),
  claimRow("7519 4.1.3", "another audience", { aud: "https://other.example" }, unexpected("aud")),
  claimRow("7519 4.1.3", "no audience", { aud: undefined }, missing("aud")),
  claimRow("9068 4", "another issuer", { iss: "https://evil.example" }, untrusted),
  claimRow("9068 4", "no issuer", { iss: undefined }, missing("iss")),
  claimRow("9068 4", "an issuer that is a list", { iss: [] }, missing("iss")),
  row(
    "8725 3.8",
    "the issuer with an extra slash",
    (setup) => bearer("/plain", accessToken({ issuer: `${setup.issuer}/` })),
    untrusted,
  ),
  tokenRow("7515 5.2", "a signature by a different key", { key: strangerKey }, wrongSignature),
  tokenRow(
    "OIDC Core 10.1.1",
    "an unknown kid",
    { kid: "ec-9" },
    invalid("the token's kid does not match any of the provider's usable keys"),
  ),
  headerRow("7515 4.1.4", "no kid", { kid: undefined }, invalid("the token's header has no kid")),
  headerRow(
    "8725 3.1",
    "alg that does not match the key",
    { alg: "ES384" },
    invalid("the token's alg does not match the alg of its key"),
  ),
  tokenRow(
    "8725 3.10",
    "its own key in the header",
    { key: strangerKey, header: { jwk: withoutPrivate(strangerKey) } },
    wrongSignature,
  ),
  row("8725 3.2", "alg none", withToken("none", noSignature), noSuchAlg),
  row("8725 2.1", "HS256 with the public key", withToken("HS256", hmac("HS256", publicText)), noSuchAlg),
  row(
    "7519 4.1.4",
    "exp outside the numeric range",
    withToken("ES256", signature("ES256", ecOne), '"exp":1e400'),
    invalid("claim 'exp' is not a finite number"),
  ),
  headerRow(
    "7515 4.1.11",
    "an unknown crit",
    { crit: ["x"], x: 1 },
    invalid("the token has critical header parameters that are not understood"),
  ),
  headerRow("7797 7", "b64: false", { crit: ["b64"], b64: false }, malformed),
  tokenRow("9068 4", "an ID token", { header: { typ: "JWT" }, claims: { nonce: "n" } }, otherType),
  headerRow("9068 4", "no typ", { typ: undefined }, otherType),
  headerRow("8725 3.11", "a logout token", { typ: "logout+jwt" }, otherType),
  headerRow("8725 3.11", "typ JWT where that is allowed", { typ: "JWT" }, ok, "/jwt"),
  headerRow("8725 3.11", "no typ where that is allowed", { typ: undefined }, ok, "/jwt"),
  headerRow(
    "8725 3.11",
    "a logout token where JWT is allowed",
    { typ: "logout+jwt" },
    invalid("the token's typ is neither at+jwt nor JWT; send an access token"),
    "/jwt",
  ),
  tokenRow(
    "OIDC Core 2",
    "an ID token where JWT is allowed",
    { header: { typ: "JWT" }, claims: { nonce: "n" } },
    idToken,
    "/jwt",
  ),
  tokenRow(
    "OIDC Core 2",
    "an ID token with at_hash",
    { header: { typ: "JWT" }, claims: { at_hash: "h" } },
    idToken,
    "/jwt",
  ),
  ...markedTokens("id", "ID").map(([provider, claims]) =>
    optional(
      tokenRow("OIDC Core 2", `an ID token from ${provider}`, { header: { typ: "JWT" }, claims }, idToken, "/jwt"),
    ),
  ),
  ...markedTokens("access", "Bearer").map(([provider, claims]) =>
    tokenRow("9068 4", `an access token from ${provider}`, { header: { typ: "JWT" }, claims }, ok, "/jwt"),
  ),
  claimRow(
    "9068 2.2",
    "a claim that the API requires is missing",
    { sub: undefined, cnf: {} },
    missing("sub"),
    "/required-claims",
  ),
  tokenRow("8705 3", "an unbound token where the API requires a binding", {}, missing("cnf"), "/required-claims"),
];

const denied = (description: string, more = ""): Expected => ({
  status: 403,
  challenge: `Bearer ${realm}, error="insufficient_scope", error_description="${description}"${more}`,
});
const silver = "urn:mace:incommon:iap:silver";
const tooLittle = (scope: string): Expected => denied(`the token needs the scope ${scope}`, `, scope="${scope}"`);
const stepUp = (description: string, parameters: string): Expected =>
  challenged(`error="insufficient_user_authentication", error_description="${description}", ${parameters}`);
const otherWay = stepUp("the user must sign in with a different method", `acr_values="${silver} phr"`);
const longAgo = stepUp("the user signed in too long ago", 'max_age="60"');
const future = stepUp("the sign-in time is in the future (auth_time)", 'max_age="60"');
const needed = "orders:read orders:list";
/** Claims with the time of the request, which may be long after this file was loaded. */
const signedInNow = {
  get auth_time(): number {
    return nowSeconds();
  },
};
const requirements: readonly Row[] = [
  formRow("no token for a route with scopes", sent(undefined, "/scope"), challenged(`scope="${needed}"`)),
  claimRow(
    "6750 3",
    "an expired token for a route with scopes",
    { exp: ago(1) },
    challenged(`error="invalid_token", error_description="the token has expired", scope="${needed}"`),
    "/scope",
  ),
  claimRow("6750 3.1", "all scopes and more", { scope: `openid ${needed}` }, ok, "/scope"),
  claimRow("6750 3.1", "scopes as a list in scp", { scp: needed.split(" ") }, ok, "/scope"),
  claimRow("6750 3.1", "one of two scopes", { scope: "orders:read" }, tooLittle(needed), "/scope"),
  claimRow(
    "6750 3.1",
    "a scope that begins with the required scope",
    { scope: "orders:readonly orders:list" },
    tooLittle(needed),
    "/scope",
  ),
  tokenRow("6750 3.1", "no scope", {}, tooLittle(needed), "/scope"),
  tokenRow("9470 3", "no acr", {}, otherWay, "/acr"),
  claimRow("9470 3", "another acr", { acr: "0" }, otherWay, "/acr"),
  claimRow("9470 3", "one of the acr values", { acr: silver }, ok, "/acr"),
  tokenRow("9470 3", "no auth_time", {}, longAgo, "/max-age"),
  claimRow("9470 3", "a sign-in long ago", { auth_time: ago(3_600) }, longAgo, "/max-age"),
  claimRow("9470 3", "auth_time as a string", { auth_time: "9999999999" }, longAgo, "/max-age"),
  claimRow("9470 3", "a sign-in tomorrow", { auth_time: ago(-86_400) }, future, "/max-age"),
  claimRow("9470 3", "auth_time in milliseconds", { auth_time: Date.now() }, future, "/max-age"),
  claimRow("9470 3", "a sign-in just now", signedInNow, ok, "/max-age"),
  tokenRow(
    "9470 3",
    "the sign-in is checked before the scope",
    {},
    stepUp("the user must sign in with a different method", 'acr_values="phr", max_age="60", scope="orders:write"'),
    "/step-up",
  ),
  claimRow(
    "9470 3",
    "the scope is checked after the sign-in",
    {
      acr: "phr",
      get auth_time() {
        return nowSeconds();
      },
    },
    tooLittle("orders:write"),
    "/step-up",
  ),
];

const tenantRow = (name: string, tenant: string, expected: Expected): Row =>
  row(
    "6750 3.1",
    name,
    (setup) => bearer("/tenant", accessToken(setup, tenantToken), [["X-Tenant", tenant]]),
    expected,
  );
const tenantToken = { claims: { tenant: "a" } };
const cookieRow = (name: string, cookies: string, expected: Expected, target = "/cookie"): Row => {
  const request = (setup: Setup): WireRequest => {
    const token = accessToken(setup);
    return { target: target.replace("TOKEN", token), headers: [["Cookie", cookies.replace("TOKEN", token)]] };
  };
  return row("6750 5.3", name, request, expected);
};
const notYours = denied("the order belongs to another user", ', scope="orders:admin"');
const oneOfTwo = denied("the token needs one of these scopes: orders:write orders:read", ', scope="orders:write"');
const otherClient = unexpected("client_id");
const atClients = (expected: Expected): Expected =>
  "challenge" in expected ? { ...expected, challenge: expected.challenge.replace(realm, 'realm="app"') } : expected;
const routes: readonly Row[] = [
  claimRow("6750 3.1", "one of the alternative scopes", { scope: "a orders:read" }, ok, "/any"),
  claimRow("6750 3.1", "none of the alternative scopes", { scope: "orders" }, oneOfTwo, "/any"),
  formRow("no token for a route with alternative scopes", sent(undefined, "/any"), challenged('scope="orders:write"')),
  claimRow("6750 3.1", "scopes in another claim", { permissions: ["orders:read"] }, ok, "/permissions"),
  claimRow(
    "6750 3.1",
    "no scopes in the first claim",
    { permissions: [], scope: "orders:read" },
    tooLittle("orders:read"),
    "/permissions",
  ),
  tenantRow("the tenant of the token", "a", ok),
  tenantRow("another tenant", "b", denied("the token does not allow this request")),
  claimRow("6750 3.1", "a token that the application accepts", { scope: "orders:read" }, ok, "/revoked"),
  claimRow(
    "6750 3.1",
    "a token that the application has revoked",
    { scope: "orders:read", revoked: true },
    invalid("the token was revoked"),
    "/revoked",
  ),
  tokenRow(
    "6750 3.1",
    "the application requires another scope",
    {},
    denied("large orders need more", ', scope="orders:large"'),
    "/step",
  ),
  byHandler(claimRow("6750 3.1", "a handler refuses", { scope: "orders:read" }, notYours, "/denied")),
  byHandler(
    tokenRow("6750 3.1", "a handler requires a new token", {}, invalid("the session has ended"), "/denied/401"),
  ),
  byHandler(
    formRow(
      "a handler refuses a request without a token",
      sent(undefined, "/denied/optional"),
      challenged('scope="orders:admin"'),
    ),
  ),
  byHandler(
    row("9449 7.1", "a handler refuses a token with a proof", (setup) => proven(setup, "/denied/dpop"), {
      status: 403,
      challenge: `DPoP ${realm}, error="insufficient_scope", error_description="the order belongs to another user", scope="orders:admin", ${algs}`,
    }),
  ),
  tokenRow("9110 15.6.4", "the application's check fails", {}, { status: 503, retryAfter: "1" }, "/check-fails"),
  formRow("no token where a token is optional", sent(undefined, "/optional"), { status: 200, body: "{}" }),
  formRow("no token where a token with a scope is optional", sent(undefined, "/optional/scope"), {
    status: 200,
    body: "{}",
  }),
  formRow("an empty Authorization where a token is optional", sent("", "/optional"), { status: 200, body: "{}" }),
  tokenRow("6750 3.1", "a valid token where a token is optional", {}, ok, "/optional"),
  tokenRow("6750 3.1", "insufficient scope where a token is optional", {}, tooLittle("orders:read"), "/optional/scope"),
  formRow("an invalid token where a token is optional", sent("Bearer abc", "/optional"), malformed),
  optional(formRow("another scheme where a token is optional", sent("Basic YTpi", "/optional"), none)),
  optional(
    formRow("a token in the query where a token is optional", sent(undefined, "/optional?access_token=abc"), none),
  ),
  claimRow("9068 4", "no audience and an accepted client", { aud: undefined }, ok, "/client-id"),
  claimRow(
    "9068 4",
    "no audience and another client",
    { aud: undefined, client_id: "evil" },
    atClients(otherClient),
    "/client-id",
  ),
  claimRow(
    "9068 4",
    "neither audience nor client",
    { aud: undefined, client_id: undefined },
    atClients(missing("client_id")),
    "/client-id",
  ),
  tokenRow("9068 4", "an accepted client and another API's audience", {}, atClients(unexpected("aud")), "/client-id"),
  cookieRow("a token in a cookie", "a=b; token=TOKEN", ok),
  cookieRow("no token in the cookies", "a=b", {
    status: 401,
    challenge: `Bearer ${realm}`,
    detail: "This request needs an access token.",
  }),
  cookieRow("an invalid token in a cookie", "token=abc", malformed),
  optional(
    cookieRow(
      "a token in a cookie and in the URL",
      "token=TOKEN",
      badRequest("tokens in the URL are rejected"),
      "/cookie?t=TOKEN",
    ),
  ),
  claimRow(
    "6750 2.1",
    "a token that is longer than the API accepts",
    { padding: "x".repeat(1_000) },
    invalid("the token is longer than 1000 bytes"),
    "/short",
  ),
  tokenRow("6750 2.1", "a token that is not too long", {}, ok, "/short"),
  tokenRow("7515 4.1.4", "the application's own keys", {}, ok, "/own-keys"),
  row(
    "8414 3.1",
    "an authorization server without OpenID Connect",
    ({ issuer }) => bearer("/oauth", accessToken({ issuer: `${issuer}/oauth` })),
    ok,
  ),
];

const issuers: readonly Row[] = [
  row(
    "9068 4",
    "a token from the second issuer",
    ({ other }) => bearer("/several", accessToken({ issuer: other }, { key: otherKeys["ec-1"].jwk })),
    ok,
  ),
  row(
    "8725 3.8",
    "a token from one issuer, signed by the other",
    ({ other }) => bearer("/several", accessToken({ issuer: other })),
    wrongSignature,
  ),
  claimRow("9068 4", "an unlisted issuer", { iss: "https://evil.example" }, untrusted, "/several"),
  tokenRow("9068 4", "an issuer that the function allows", {}, ok, "/function"),
  claimRow(
    "9068 4",
    "an issuer that the function does not allow",
    { iss: "https://evil.example" },
    untrusted,
    "/function",
  ),
  row(
    "OIDC Discovery 4.1",
    "an issuer that only looks like one that the function allows",
    ({ issuer }) => bearer("/function", accessToken({ issuer: `${issuer}@evil.example/` })),
    untrusted,
  ),
  row("9110 15.6.4", "keys that cannot be fetched", ({ down }) => bearer("/down", accessToken({ issuer: down })), {
    status: 503,
    retryAfter: "1",
  }),
  tokenRow("9110 15.6.4", "the keys of another issuer can be fetched", {}, ok, "/down/several"),
];

const metadata = 'resource_metadata="https://api.example.com/.well-known/oauth-protected-resource/orders"';
const resourceRows: readonly Row[] = [
  formRow("no token", sent(undefined, "/resource"), challenged(`scope="orders:read", ${metadata}`), "9728 5.1"),
  row(
    "9728 5.1",
    "insufficient scope",
    (setup) => bearer("/resource", accessToken(setup)),
    denied("the token needs the scope orders:read", `, scope="orders:read", ${metadata}`),
  ),
];

const otherUrl = badProof("the proof's htu does not match the request URL");
const unknownBinding = invalid("the token has an unknown binding (cnf)");
const otherMethod = badProof("the proof's htm does not match the request method");
const otherHash = badProof("the proof's ath does not match the token's hash");
const isPrivate = { header: { jwk: { ...clientKey } } };
const dpopRows: readonly Row[] = [
  formRow("no token where proofs are optional", sent(undefined, "/dpop"), noDpop, "9449 7.2"),
  formRow(
    "no token where proofs are required",
    sent(undefined, "/dpop-required"),
    { status: 401, challenge: `DPoP ${realm}, ${algs}, ${metadata}` },
    "9449 7.1",
  ),
  tokenRow("9449 7.2", "an unbound token where proofs are optional", {}, ok, "/dpop"),
  tokenRow(
    "9449 7.2",
    "an unbound token where proofs are required",
    {},
    {
      status: 401,
      challenge: `DPoP ${realm}, error="invalid_token", error_description="this request needs a DPoP proof; send the token with the DPoP scheme", ${algs}, ${metadata}`,
    },
    "/dpop-required",
  ),
  formRow(
    "Bearer without a token where proofs are required",
    sent("Bearer", "/dpop-required"),
    { status: 401, challenge: `DPoP ${realm}, ${algs}, ${metadata}` },
    "9449 7.1",
  ),
  formRow(
    "DPoP without a token",
    sent("DPoP", "/dpop"),
    {
      status: 400,
      challenge: `DPoP ${realm}, error="invalid_request", error_description="the Authorization header must consist of a scheme, a space and one token", ${algs}`,
    },
    "9449 9",
  ),
  row(
    "9449 7.2",
    "a bound token without its proof",
    (setup) => bearer("/dpop", boundToken(setup)),
    challenged(
      `error="invalid_token", error_description="the token is bound to a key; send it with the DPoP scheme and a proof", DPoP ${realm}, ${algs}`,
    ),
  ),
  optional(
    row(
      "9449 7.2",
      "a bound token without DPoP support",
      (setup) => bearer("/plain", boundToken(setup)),
      invalid("the token is bound to a key, which is not supported here"),
    ),
  ),
  optional(claimRow("7800 3.1", "a token with an unknown binding", { cnf: { kid: "k" } }, unknownBinding)),
  optional(claimRow("7800 3.1", "a binding that is null", { cnf: null }, unknownBinding)),
  row(
    "9449 7.1",
    "an unbound token under the DPoP scheme",
    (setup) => proven(setup, "/dpop", {}, accessToken(setup)),
    badDpop("invalid_token", "the token is not bound to a key (cnf.jkt)"),
  ),
  row(
    "9449 4.3",
    "no proof",
    (setup) => sent(`DPoP ${boundToken(setup)}`, "/dpop"),
    badProof("the DPoP header is missing"),
  ),
  row(
    "9449 4.3",
    "two proofs",
    (setup) => {
      const token = boundToken(setup);
      const { headers = [], ...one } = dpop("/dpop", token, dpopProof(token, "/dpop"));
      return { ...one, headers: [...headers, ["DPoP", dpopProof(token, "/dpop")]] };
    },
    noProof,
  ),
  proofRow("a valid proof", {}, ok),
  proofRow("a valid proof where proofs are required", {}, ok, "/dpop-required"),
  proofRow("another typ", { header: { typ: "JWT" } }, noProof),
  proofRow("no typ", { header: { typ: undefined } }, noProof),
  proofRow("alg none", { header: { alg: "none" } }, noProof),
  proofRow("a symmetric alg", { header: { alg: "HS256" } }, noProof),
  proofRow("no key", { header: { jwk: undefined } }, noProof),
  proofRow("a private key", isPrivate, noProof),
  proofRow("an invalid key", { header: { jwk: { kty: "EC", crv: "P-256", x: "AA", y: "AA" } } }, noProof),
  proofRow("a signature by another key", { key: strangerKey, header: { jwk: withoutPrivate(clientKey) } }, noProof),
  proofRow("no jti", { claims: { jti: undefined } }, badProof("the proof has no jti")),
  proofRow("another method", { claims: { htm: "POST" } }, otherMethod),
  proofRow("a lower-case method", { claims: { htm: "get" } }, otherMethod),
  proofRow("another path", { claims: { htu: `${audience}/other` } }, otherUrl),
  proofRow("another host, named by the Host header", { claims: { htu: "https://op.example/dpop" } }, otherUrl),
  proofRow("no URL", { claims: { htu: undefined } }, otherUrl),
  proofRow("a URL in another spelling", { claims: { htu: "HTTPS://API.example.com:443/%64pop?a#b" } }, ok),
  proofRow("too old", { claims: { iat: ago(120) } }, badProof("the proof is too old (iat)")),
  proofRow("issued in the future", { claims: { iat: ago(-3_600) } }, badProof("the proof's iat is in the future")),
  proofRow("no iat", { claims: { iat: undefined } }, badProof("the proof is too old (iat)")),
  proofRow("no hash of the token", { claims: { ath: undefined } }, otherHash),
  proofRow("the hash of another token", { claims: { ath: "x" } }, otherHash),
  proofRow(
    "a different key than the token's",
    { key: strangerKey },
    badProof("the token is bound to a different key, not to the proof's key"),
  ),
  {
    source: "9449 11.1",
    name: "a reused proof",
    request: (setup) => proven(setup, "/dpop"),
    again: true,
    expected: badProof("the proof has already been used (jti)"),
  },
  row("9449 9", "no nonce", (setup) => proven(setup, "/dpop-nonce"), {
    ...(badDpop("use_dpop_nonce", "the proof needs the nonce from the DPoP-Nonce header") as object),
    nonce: true,
  } as Expected),
  row("9449 9", "an insufficient sign-in, under the DPoP scheme", (setup) => proven(setup, "/dpop/acr"), {
    status: 401,
    challenge: `DPoP ${realm}, error="insufficient_user_authentication", error_description="the user must sign in with a different method", acr_values="phr", ${algs}`,
  }),
  row("9449 9", "insufficient scope, under the DPoP scheme", (setup) => proven(setup, "/dpop/scope"), {
    status: 403,
    challenge: `DPoP ${realm}, error="insufficient_scope", error_description="the token needs the scope orders:read", scope="orders:read", ${algs}`,
  }),
];

const otherCertificate = invalid("the token is bound to a different certificate, or no certificate was presented");
const certificateRow = (
  name: string,
  thumbprint: string,
  pem: string | undefined,
  expected: Expected,
  path = "/certificate",
): Row =>
  row(
    "8705 3",
    name,
    (setup) =>
      bearer(
        path,
        accessToken(setup, { claims: { cnf: { "x5t#S256": thumbprint } } }),
        pem === undefined ? [] : [["Client-Cert", encodeURIComponent(pem)]],
      ),
    expected,
  );
const certificates: readonly Row[] = [
  certificateRow("the token's certificate", x5t, certificatePem, ok),
  certificateRow("another certificate", x5t, certificatePem.replace("MDog", "MDoh"), otherCertificate),
  certificateRow("no certificate", x5t, undefined, otherCertificate),
  optional(
    certificateRow("a bound token without support for certificates", x5t, certificatePem, otherCertificate, "/plain"),
  ),
  tokenRow("8705 3", "an unbound token", {}, ok, "/certificate"),
];

/** The rows, by topic. */
export const topics: Readonly<Record<string, readonly Row[]>> = {
  "request format": forms,
  token: tokens,
  "scope and sign-in": requirements,
  "route and provider requirements": routes,
  "several issuers and outages": issuers,
  "resource metadata": resourceRows,
  DPoP: dpopRows,
  "certificate-bound tokens": certificates,
};

export const rows: readonly Row[] = Object.values(topics).flat();
