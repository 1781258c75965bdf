import type { Code } from "../codes.ts";

/** A verifier that fails. */
export interface FailingVerifier {
  /** The verifier's name. */
  readonly client: string;
  /** The version that was run or to which the source applies. */
  readonly version: string;
  /**
   * Tokens that fail. `every token` includes tokens signed with valid keys. `its tokens` means only tokens signed with
   * the keys in the finding.
   */
  readonly fails: "every token" | "its tokens";
  /** Whether the verifier fails on only some of the documents or tokens that have the finding. */
  readonly inSomeForms?: true;
  /** URL of a public issue or a line of source. Absent if the verifier was run. */
  readonly source?: string;
}

/** Cites a public issue. */
const issue = (client: string, version: string, fails: FailingVerifier["fails"], thread: string): FailingVerifier => {
  const [repository = "", number = ""] = thread.split("#");
  return { client, version, fails, source: `https://github.com/${repository}/issues/${number}` };
};

/** Cites a line of source at a tag. */
const line = (client: string, version: string, fails: FailingVerifier["fails"], place: string): FailingVerifier => {
  const [repository = "", path = ""] = place.split(":");
  return { client, version, fails, source: `https://github.com/${repository}/blob/${path}` };
};

const php = (lineNumber: number): FailingVerifier =>
  line("firebase/php-jwt", "7.0.5", "every token", `firebase/php-jwt:v7.0.5/src/JWK.php#L${lineNumber}`);
const rust = (lineNumber: number): FailingVerifier =>
  line("jsonwebtoken (Rust)", "10.4.0", "every token", `Keats/jsonwebtoken:v10.4.0/src/jwk.rs#L${lineNumber}`);

const unknownType: readonly FailingVerifier[] = [
  issue("go-jose", "4.1.4", "every token", "go-jose/go-jose#276"),
  issue("ruby-jwt", "3.2.0", "every token", "jwt/ruby-jwt#743"),
  issue("Authlib", "1.7.2", "every token", "authlib/authlib#913"),
  issue("joserfc", "(reported 2026-07)", "every token", "authlib/joserfc#104"),
  issue("JOSESwift", "3.0.0", "every token", "airsidemobile/JOSESwift#494"),
  rust(552),
];

/** Verifiers that cannot be run in our tests, and other versions of verifiers that can. */
export const cited: Readonly<Partial<Record<Code, readonly FailingVerifier[]>>> = {
  JWKS_PRIVATE_MEMBERS: [{ ...php(120), inSomeForms: true }],
  JWKS_MEMBER_TWICE: [rust(552)],
  JWKS_KTY_MISSING: [php(103), rust(552)],
  JWKS_KTY_UNKNOWN: unknownType,
  JWKS_KTY_AKP: unknownType,
  JWKS_EC_CURVE_UNKNOWN: [
    issue("go-oidc", "3.19.0", "every token", "dexidp/dex#5016"),
    issue("zitadel/oidc", "(reported 2026-07)", "every token", "zitadel/oidc#908"),
    rust(299),
  ],
  JWKS_OKP_CURVE: [
    issue("go-oidc", "before 3.21.0", "every token", "coreos/go-oidc#498"),
    issue("PyJWT", "before 2.7.0", "every token", "jpadilla/pyjwt#862"),
    php(165),
  ],
  JWKS_MEMBER_MISSING: [php(149), rust(552)],
  JWKS_ALG_MISSING: [
    issue("jwks-rsa-java", "before 0.3.0", "every token", "auth0/jwks-rsa-java#6"),
    { ...php(112), version: "7.0.5 without a default alg" },
  ],
  JWKS_ENCRYPTION_KEY: [
    issue("PyJWT", "before the 2022-05 fix", "every token", "jpadilla/pyjwt#722"),
    issue("google-oauth-java-client", "1.35.0", "every token", "googleapis/google-oauth-java-client#1113"),
  ],
  JWKS_EC_COORDINATE_LENGTH: [issue("go-oidc", "(reported 2025-06)", "every token", "coreos/go-oidc#459")],
  JWKS_RSA_LEADING_ZERO: [
    issue("AWS STS", "(reported 2026-08)", "its tokens", "jenkinsci/oidc-provider-plugin#205"),
    issue(
      "Microsoft.IdentityModel",
      "5.2.4",
      "its tokens",
      "AzureAD/azure-activedirectory-identitymodel-extensions-for-dotnet#977",
    ),
  ],
  HTTP_TOO_LARGE: [issue("Nimbus JOSE+JWT", "9.28", "every token", "GluuFederation/flex#969")],
  HTTP_MEDIA_TYPE: [
    issue("oidc-client-js", "before 1.5.2", "every token", "DuendeArchive/identity-model-oidc-client-js#609"),
  ],
  HTTP_NOT_ACCEPTABLE: [issue("jwks-rsa-java", "(reported 2020-01)", "every token", "auth0/jwks-rsa-java#77")],
  HTTP_SLOW_250: [issue("Nimbus JOSE+JWT", "(reported 2018-01)", "every token", "okta/okta-jwt-verifier-java#7")],
  HTTP_SLOW_500: [
    line(
      "Spring Security",
      "7.0.0 to 7.0.6, and 7.1.0",
      "every token",
      "spring-projects/spring-security:7.1.0/oauth2/oauth2-jose/src/main/java/org/springframework/security/oauth2/jwt/NimbusJwtDecoder.java#L585",
    ),
  ],
  HTTP_USER_AGENT: [issue("PyJWT", "(reported 2025-11)", "every token", "jpadilla/pyjwt#1121")],
  DISCOVERY_ISSUER_SLASH: [issue("go-oidc", "(reported 2024-03)", "every token", "coreos/go-oidc#423")],
};
