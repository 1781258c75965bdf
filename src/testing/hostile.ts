import { type TestKey, makeTestKey } from "./keys.ts";

/** The key of the issuer, then an odd one. */
const beside =
  (odd: (jwk: Readonly<Record<string, unknown>>, privateJwk: object) => unknown) =>
  ({ jwk }: TestKey, { jwk: other, privateJwk }: TestKey): string =>
    JSON.stringify({ keys: [jwk, odd({ ...other, kid: "odd" }, privateJwk)] });

const x = "BwcH".repeat(19);

/** JWK Sets with one fault, by the code with which `jwksd doctor` finds it. Where the fault is in one key, a good token still has its own. */
const sets = {
  JWKS_NOT_JSON: () => "<!doctype html>",
  JWKS_KEYS_MISSING: () => '{"jwks":[]}',
  JWKS_KEYS_NOT_LIST: ({ jwk }) => JSON.stringify({ keys: { jwk } }),
  JWKS_KEYS_EMPTY: () => '{"keys":[]}',
  JWKS_MEMBER_NOT_OBJECT: beside(() => null),
  JWKS_KID_MISSING: beside((jwk) => ({ ...jwk, kid: undefined })),
  JWKS_KID_TYPE: beside((jwk) => ({ ...jwk, kid: 7 })),
  JWKS_KID_DUPLICATE: ({ jwk }, other) => JSON.stringify({ keys: [{ ...other.jwk, kid: jwk.kid }, jwk] }),
  JWKS_KEY_TWO_KIDS: ({ jwk }) => JSON.stringify({ keys: [jwk, { ...jwk, kid: "odd" }] }),
  JWKS_PRIVATE_MEMBERS: beside((jwk, privateJwk) => ({ ...privateJwk, ...jwk })),
  JWKS_OCT: beside(() => ({ kty: "oct", kid: "odd", alg: "HS256", k: "c2VjcmV0" })),
  JWKS_KTY_MISSING: beside((jwk) => ({ ...jwk, kty: undefined })),
  JWKS_KTY_UNKNOWN: beside(() => ({ kty: "XYZ", kid: "odd", x: "AQAB" })),
  JWKS_KTY_AKP: beside(() => ({ kty: "AKP", kid: "odd", use: "sig", alg: "ML-DSA-65", pub: "AQEB".repeat(650) })),
  JWKS_EC_CURVE_UNKNOWN: beside((jwk) => ({ ...jwk, crv: "secp256k1", alg: "ES256K" })),
  JWKS_EC_OFF_CURVE: beside((jwk) => ({ ...jwk, y: jwk["x"] })),
  JWKS_OKP_CURVE: beside(() => ({ kty: "OKP", kid: "odd", use: "sig", crv: "Ed448", alg: "EdDSA", x })),
  JWKS_MEMBER_MISSING: beside((jwk) => ({ ...jwk, y: undefined })),
  JWKS_BASE64URL_PADDING: beside((jwk) => ({ ...jwk, x: `${String(jwk["x"])}=` })),
  JWKS_ALG_MISSING: beside((jwk) => ({ ...jwk, alg: undefined })),
  JWKS_ALG_MISMATCH: beside((jwk) => ({ ...jwk, alg: "RS256" })),
  JWKS_USE_UNKNOWN: beside((jwk) => ({ ...jwk, use: "signature" })),
  JWKS_RSA_EXPONENT: beside((jwk) => ({ ...jwk, e: "AQ" })),
  JWKS_RSA_LEADING_ZERO: beside((jwk) => ({ ...jwk, e: "AAEAAQ" })),
  HTTP_TOO_LARGE: ({ jwk }) => JSON.stringify({ keys: [jwk], notes: "x".repeat(51_200) }),
} as const satisfies Readonly<Record<string, (key: TestKey, other: TestKey) => string>>;

export type HostileName = keyof typeof sets;
export const hostileNames = Object.keys(sets) as readonly HostileName[];

/** The text of a JWK Set. @param key of the issuer */
export const hostileSet = async (name: HostileName, key: TestKey): Promise<string> =>
  sets[name](key, await makeTestKey(name.includes("RSA") ? "RS256" : "ES256"));
