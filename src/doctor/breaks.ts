import type { Code } from "./codes.ts";

/** A verifier that fails. */
export interface Break {
  /** Its name. */
  readonly client: string;
  /** The version that was tested, or that an issue names. */
  readonly version: string;
  /** `every token`: also tokens of good keys. `its tokens`: only tokens of the keys in the finding. */
  readonly fails: "every token" | "its tokens";
  /** URL of the public issue; absent if a test of jwksd shows the failure. */
  readonly issue?: string;
}

/** The tested verifiers. A test compares names and versions with the installed packages, and each list with the real failures. */
const tested = {
  jose: { client: "jose", version: "6.2.17" },
  jwksRsa: { client: "jwks-rsa + jsonwebtoken", version: "4.1.0 + 9.0.3" },
  getJwks: { client: "get-jwks + fast-jwt", version: "11.0.3 + 6.3.6" },
  aws: { client: "aws-jwt-verify", version: "5.2.1" },
  openid: { client: "openid-client", version: "6.8.9" },
} as const;
type Tested = keyof typeof tested;

const failing = (fails: Break["fails"], names: readonly Tested[]): Break[] =>
  names.map((name): Break => ({ client: tested[name].client, version: tested[name].version, fails }));
const all = (...names: readonly Tested[]): Break[] => failing("every token", names);
const its = (...names: readonly Tested[]): Break[] => failing("its tokens", names);
const everyone = all("jose", "jwksRsa", "getJwks", "aws", "openid");

const cited = (client: string, version: string, fails: Break["fails"], thread: string): Break => {
  const [repository = "", number = ""] = thread.split("#");
  return { client, version, fails, issue: `https://github.com/${repository}/issues/${number}` };
};

const unknownType: readonly Break[] = [
  cited("go-jose", "4.1.4", "every token", "go-jose/go-jose#276"),
  cited("ruby-jwt", "3.2.0", "every token", "jwt/ruby-jwt#743"),
  cited("Authlib", "1.7.2", "every token", "authlib/authlib#913"),
  cited("joserfc", "(reported 2026-07)", "every token", "authlib/joserfc#104"),
  cited("JOSESwift", "3.0.0", "every token", "airsidemobile/JOSESwift#494"),
];

/** Verifiers that fail, by code. */
export const breaks: Readonly<Partial<Record<Code, readonly Break[]>>> = {
  JWKS_NOT_JSON: everyone,
  JWKS_KEYS_MISSING: everyone,
  JWKS_KEYS_NOT_LIST: everyone,
  JWKS_KEYS_EMPTY: everyone,
  JWKS_MEMBER_NOT_OBJECT: all("jose", "aws", "openid"),
  JWKS_KID_MISSING: its("jose", "jwksRsa", "aws", "openid"),
  JWKS_KID_TYPE: [...its("jose", "jwksRsa"), ...all("aws")],
  JWKS_KID_DUPLICATE: its("jose", "jwksRsa", "getJwks", "aws", "openid"),
  JWKS_KEY_TWICE: its("jose", "openid"),
  JWKS_PRIVATE_MEMBERS: its("jose", "jwksRsa", "openid"),
  JWKS_KTY_MISSING: [...its("jose", "jwksRsa", "getJwks"), ...all("aws"), ...its("openid")],
  JWKS_KTY_UNKNOWN: unknownType,
  JWKS_KTY_AKP: unknownType,
  JWKS_EC_CURVE_UNKNOWN: [
    cited("go-oidc", "3.19.0", "every token", "dexidp/dex#5016"),
    cited("zitadel/oidc", "(reported 2026-07)", "every token", "zitadel/oidc#908"),
  ],
  JWKS_OKP_CURVE: [cited("go-oidc", "before 3.21.0", "every token", "coreos/go-oidc#498")],
  JWKS_MEMBER_MISSING: its("jose", "jwksRsa", "getJwks", "aws", "openid"),
  JWKS_ALG_MISSING: [
    cited("jwks-rsa-java", "before 0.3.0", "every token", "auth0/jwks-rsa-java#6"),
    cited("firebase/php-jwt", "6.0 without a default alg", "every token", "firebase/php-jwt#376"),
  ],
  JWKS_ALG_MISMATCH: its("jose", "jwksRsa", "getJwks", "aws", "openid"),
  JWKS_USE_ALG_CONTRADICT: its("jose", "jwksRsa", "aws", "openid"),
  JWKS_USE_KEY_OPS_CONTRADICT: its("jose", "jwksRsa", "openid"),
  JWKS_KEY_OPS_PRIVATE: its("jose", "jwksRsa", "openid"),
  JWKS_KEY_OPS_TYPE: its("jose", "jwksRsa"),
  JWKS_ENCRYPTION_KEY: [
    cited("PyJWT", "before the fix of 2022-05", "every token", "jpadilla/pyjwt#722"),
    cited("google-oauth-java-client", "1.35.0", "every token", "googleapis/google-oauth-java-client#1113"),
  ],
  JWKS_EC_COORDINATE_LENGTH: [
    cited("PyJWT", "(reported 2021-11)", "its tokens", "jpadilla/pyjwt#709"),
    cited("go-oidc", "(reported 2025-06)", "every token", "coreos/go-oidc#459"),
  ],
  JWKS_EC_OFF_CURVE: its("jose", "jwksRsa", "getJwks", "aws", "openid"),
  JWKS_RSA_LEADING_ZERO: [
    cited("AWS STS", "(reported 2026-08)", "its tokens", "jenkinsci/oidc-provider-plugin#205"),
    cited(
      "Microsoft.IdentityModel",
      "5.2.4",
      "its tokens",
      "AzureAD/azure-activedirectory-identitymodel-extensions-for-dotnet#977",
    ),
  ],
  JWKS_RSA_SHORT: its("jose", "openid"),
  HTTP_STATUS: everyone,
  HTTP_TOO_LARGE: [cited("Nimbus JOSE+JWT", "9.28", "every token", "GluuFederation/flex#969")],
  HTTP_MEDIA_TYPE: [
    cited("oidc-client-js", "before 1.5.2", "every token", "DuendeArchive/identity-model-oidc-client-js#609"),
  ],
  HTTP_NOT_ACCEPTABLE: [
    ...all("jwksRsa", "aws"),
    cited("jwks-rsa-java", "(reported 2020-01)", "every token", "auth0/jwks-rsa-java#77"),
  ],
  HTTP_SLOW_250: [cited("Nimbus JOSE+JWT", "(reported 2018-01)", "every token", "okta/okta-jwt-verifier-java#7")],
  HTTP_SLOW_500: [
    cited(
      "Spring Security with Nimbus JOSE+JWT",
      "7.0.5 with 10.4",
      "every token",
      "urlaubsverwaltung/urlaubsverwaltung#6181",
    ),
  ],
  HTTP_REDIRECT: all("jose", "jwksRsa", "aws", "openid"),
  HTTP_USER_AGENT: [...everyone, cited("PyJWT", "(reported 2025-11)", "every token", "jpadilla/pyjwt#1121")],
  HTTP_NO_USER_AGENT: all("jwksRsa", "aws"),
  HTTP_BOM: all("jwksRsa", "aws"),
  HTTP_NOT_UTF8: all("aws"),
  HTTP_PLAIN: all("aws", "openid"),
  TLS_INVALID: everyone,
  DISCOVERY_STATUS: all("getJwks", "openid"),
  DISCOVERY_NOT_JSON: all("getJwks", "openid"),
  DISCOVERY_ISSUER_MISSING: all("openid"),
  DISCOVERY_ISSUER_SLASH: [
    ...all("openid"),
    cited("go-oidc", "(reported 2024-03)", "every token", "coreos/go-oidc#423"),
  ],
  DISCOVERY_ISSUER_PORT: all("openid"),
  DISCOVERY_ISSUER_SCHEME: all("openid"),
  DISCOVERY_ISSUER_OTHER: all("openid"),
  DISCOVERY_JWKS_URI_MISSING: all("getJwks", "openid"),
  DISCOVERY_JWKS_URI_HTTP: all("openid"),
  DISCOVERY_KEY_WITHOUT_ALG: all("openid"),
};
