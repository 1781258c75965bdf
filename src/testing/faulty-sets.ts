import * as base64url from "jose/base64url";
import { type TestKey, generateTestKey } from "./test-keys.ts";

/** Returns a function that creates a set with the issuer's key and a faulty one. */
const withKey =
  (odd: (jwk: Readonly<Record<string, unknown>>, privateJwk: object) => unknown) =>
  ({ jwk }: TestKey, { jwk: other, privateJwk }: TestKey): string =>
    JSON.stringify({ keys: [jwk, odd({ ...other, kid: "odd" }, privateJwk)] });

const x = "BwcH".repeat(19);
const ed25519 = { kty: "OKP", kid: "odd", use: "sig", crv: "Ed25519", alg: "EdDSA" };
const point = (y: number): string => base64url.encode(Uint8Array.of(y, ...new Uint8Array(31)));
const next = (character: string): string => String.fromCharCode(character.charCodeAt(0) + 1);

/**
 * JWK Sets with one fault each, keyed by the code that `jwksd doctor` reports. If the fault is in a single key, the set
 * also contains the issuer's own key.
 */
const sets = {
  JWKS_NOT_JSON: () => "<!doctype html>",
  JWKS_KEYS_MISSING: () => '{"jwks":[]}',
  JWKS_KEYS_NOT_LIST: ({ jwk }) => JSON.stringify({ keys: { jwk } }),
  JWKS_KEYS_EMPTY: () => '{"keys":[]}',
  JWKS_MEMBER_NOT_OBJECT: withKey(() => null),
  JWKS_MEMBER_TWICE: ({ jwk }) => `{"keys":[],"keys":${JSON.stringify([jwk])}}`,
  JWKS_ONE_KEY_NO_KID: ({ jwk }) => JSON.stringify({ keys: [{ ...jwk, kid: undefined }] }),
  JWKS_ONE_OLD_KEY: ({ jwk }) => JSON.stringify({ keys: [{ ...jwk, kid: "2020-01-31" }] }),
  JWKS_NO_SIGNING_KEY: ({ jwk }) =>
    JSON.stringify({ keys: [{ ...jwk, use: undefined, alg: undefined, key_ops: ["deriveBits"] }] }),
  JWKS_KID_MISSING: withKey((jwk) => ({ ...jwk, kid: undefined })),
  JWKS_KID_EMPTY: withKey((jwk) => ({ ...jwk, kid: "" })),
  JWKS_KID_CONFUSABLE: ({ jwk }, { jwk: other }) =>
    JSON.stringify({ keys: [jwk, { ...other, kid: jwk.kid.toLowerCase() }] }),
  JWKS_KID_TYPE: withKey((jwk) => ({ ...jwk, kid: 7 })),
  JWKS_KID_DUPLICATE: ({ jwk }, other) => JSON.stringify({ keys: [{ ...other.jwk, kid: jwk.kid }, jwk] }),
  JWKS_KEY_TWICE: ({ jwk }) => JSON.stringify({ keys: [jwk, jwk] }),
  JWKS_KEY_TWO_KIDS: ({ jwk }) => JSON.stringify({ keys: [jwk, { ...jwk, kid: "odd" }] }),
  JWKS_PRIVATE_MEMBERS: withKey((jwk, privateJwk) => ({ ...privateJwk, ...jwk })),
  JWKS_OCT: withKey(() => ({ kty: "oct", kid: "odd", alg: "HS256", k: "c2VjcmV0" })),
  JWKS_KTY_MISSING: withKey((jwk) => ({ ...jwk, kty: undefined })),
  JWKS_KTY_UNKNOWN: withKey(() => ({ kty: "XYZ", kid: "odd", x: "AQAB" })),
  JWKS_KTY_AKP: withKey(() => ({ kty: "AKP", kid: "odd", use: "sig", alg: "ML-DSA-65", pub: "AQEB".repeat(650) })),
  JWKS_EC_CURVE_UNKNOWN: withKey((jwk) => ({ ...jwk, crv: "secp256k1", alg: "ES256K" })),
  JWKS_EC_OFF_CURVE: withKey((jwk) => ({ ...jwk, y: jwk["x"] })),
  JWKS_OKP_CURVE: withKey(() => ({ kty: "OKP", kid: "odd", use: "sig", crv: "Ed448", alg: "EdDSA", x })),
  JWKS_OKP_LENGTH: withKey(() => ({ ...ed25519, x: "BwcH".repeat(10) })),
  JWKS_OKP_OFF_CURVE: withKey(() => ({ ...ed25519, x: point(2) })),
  JWKS_OKP_SMALL_ORDER: withKey(() => ({ ...ed25519, x: point(1) })),
  JWKS_EC_COORDINATE_LENGTH: withKey((jwk) => ({
    ...jwk,
    x: base64url.encode(Uint8Array.of(0, ...base64url.decode(String(jwk["x"])))),
  })),
  JWKS_ENCRYPTION_KEY: withKey((jwk) => ({ ...jwk, use: "enc", alg: "ECDH-ES" })),
  JWKS_MEMBER_TOO_LONG: withKey((jwk) => ({ ...jwk, x: "A".repeat(20_000) })),
  JWKS_MEMBER_MISSING: withKey((jwk) => ({ ...jwk, y: undefined })),
  JWKS_BASE64URL_PADDING: withKey((jwk) => ({ ...jwk, x: `${String(jwk["x"])}=` })),
  JWKS_BASE64URL_ALPHABET: withKey((jwk) => ({ ...jwk, x: String(jwk["x"]).replace(/^.{20}/, "$&\n") })),
  JWKS_BASE64URL_BITS: withKey((jwk) => ({ ...jwk, x: String(jwk["x"]).replace(/.$/, next) })),
  JWKS_ALG_MISSING: withKey((jwk) => ({ ...jwk, alg: undefined })),
  JWKS_ALG_MISMATCH: withKey((jwk) => ({ ...jwk, alg: "RS256" })),
  JWKS_USE_UNKNOWN: withKey((jwk) => ({ ...jwk, use: "signature" })),
  JWKS_USE_ALG_CONTRADICT: withKey((jwk) => ({ ...jwk, use: "enc" })),
  JWKS_USE_KEY_OPS_CONTRADICT: withKey((jwk) => ({ ...jwk, key_ops: ["deriveBits"] })),
  JWKS_KEY_OPS_NO_VERIFY: withKey((jwk) => ({ ...jwk, use: undefined, key_ops: [] })),
  JWKS_KEY_OPS_PRIVATE: withKey((jwk) => ({ ...jwk, key_ops: ["sign"] })),
  JWKS_KEY_OPS_TYPE: withKey((jwk) => ({ ...jwk, key_ops: "verify" })),
  JWKS_X5T_MISMATCH: withKey((jwk) => ({ ...jwk, x5t: "AAAA" })),
  JWKS_X5U_HTTP: withKey((jwk) => ({ ...jwk, x5u: "http://login.example.com/certificate.pem" })),
  JWKS_RSA_LARGE: withKey((jwk) => ({ ...jwk, n: "____".repeat(400) })),
  JWKS_RSA_EXPONENT_LARGE: withKey((jwk) => ({ ...jwk, e: "AQAAAAE" })),
  JWKS_RSA_EXPONENT: withKey((jwk) => ({ ...jwk, e: "AQ" })),
  JWKS_RSA_LEADING_ZERO: withKey((jwk) => ({ ...jwk, e: "AAEAAQ" })),
  HTTP_TOO_LARGE: ({ jwk }) => JSON.stringify({ keys: [jwk], notes: "x".repeat(51_200) }),
} as const satisfies Readonly<Record<string, (key: TestKey, other: TestKey) => string>>;

export type HostileName = keyof typeof sets;
export const hostileNames = Object.keys(sets) as readonly HostileName[];

/** Returns the JSON of a JWK Set with a fault. @param key the issuer's key */
export const hostileSet = async (name: HostileName, key: TestKey): Promise<string> =>
  sets[name](key, await generateTestKey(name.includes("RSA") ? "RS256" : "ES256"));
