import { createHash } from "node:crypto";
import type { Code, Observations } from "../../src/doctor/index.ts";
import { ecKey, rsaKey, withoutPrivate } from "../support/keys.ts";
import { certificate } from "./certificates.ts";
import { asSet, observed } from "./observed.ts";

type Jwk = Readonly<Record<string, unknown>>;

// Two RSA keys are enough for every shape: the members and the form of the kids matter. The second one is only a byte longer, because the
// time for a modulus grows with the third power of its length.
const numbers = (key: object): Jwk => {
  const { n, e } = withoutPrivate(key);
  return { n, e };
};
const [one, two] = [numbers(rsaKey()), numbers(rsaKey(2056))];
const chain: readonly [Jwk, Jwk] = [certificate(rsaKey()), certificate(rsaKey(2056))];
/** Returns a key with its certificate and one digest, as some issuers publish it. */
const certified = (key: Jwk, { x5t, x5c }: Jwk): Jwk => ({ ...key, x5t, x5c });
const [oneCertified, twoCertified] = [certified(one, chain[0]), certified(two, chain[1])];
const ec = (seed: string): Jwk => withoutPrivate(ecKey(seed));
const thumb = (text: string): string => createHash("sha256").update(text).digest("base64url");
const hex = (text: string): string => createHash("sha1").update(text).digest("hex");

interface Shape {
  /** Name of the software or service. */
  readonly name: string;
  readonly keys: readonly Jwk[];
  /** Members of the discovery document. Default: RS256, and an authorization endpoint. */
  readonly document?: Jwk;
  /** Whether the set does not belong to an issuer. */
  readonly isBundle?: true;
  readonly headers?: Readonly<Record<string, string | undefined>>;
  /** Justified findings above `advice`. */
  readonly found?: readonly Code[];
}

const login = {
  authorization_endpoint: "https://login.example.com/authorize",
  token_endpoint: "https://login.example.com/token",
  response_types_supported: ["code"],
  subject_types_supported: ["public"],
};
/** An issuer without logins. */
const noLogin = { authorization_endpoint: undefined, token_endpoint: undefined };
const json = { "content-type": "application/json" };
/** Headers without information for caches. */
const silent = { ...json, "cache-control": undefined, etag: undefined };
const ofMicrosoft = { cloud_instance_name: "microsoftonline.com", issuer: "https://login.example.com" };
const rs256 = ["RS256"];
const es256 = ["ES256"];

/** Sets of well-known issuers: their members and headers, with keys that are generated here. */
export const shapes: readonly Shape[] = [
  {
    name: "Keycloak",
    keys: [
      { kid: thumb("a"), kty: "RSA", alg: "RSA-OAEP", use: "enc", ...two, ...chain[1] },
      { kid: thumb("b"), kty: "RSA", alg: "RS256", use: "sig", ...one, ...chain[0] },
    ],
    document: {
      id_token_signing_alg_values_supported: ["PS384", "RS384", "EdDSA", "ES384", "HS256", "ES256", "RS256", "PS256"],
    },
    headers: { ...json, "cache-control": "no-cache", etag: undefined },
  },
  {
    name: "Auth0",
    keys: [
      { kty: "RSA", use: "sig", ...oneCertified, kid: "bAmW5Ea8ZlJgUtlmgXN4x", alg: "RS256" },
      { kty: "RSA", use: "sig", ...twoCertified, kid: "Yy0KDMvXUnPXzDvQlmtVe", alg: "RS256" },
    ],
    document: { id_token_signing_alg_values_supported: ["HS256", "RS256", "PS256"] },
    headers: { ...json, "cache-control": "public, max-age=15, stale-while-revalidate=15, stale-if-error=86400" },
  },
  {
    name: "Okta",
    keys: [{ kty: "RSA", alg: "RS256", kid: thumb("okta"), use: "sig", e: "AQAB", n: one["n"] }],
    headers: { ...json, "cache-control": "max-age=5184000, must-revalidate" },
    found: ["HTTP_LIFETIME_LONG"],
  },
  {
    name: "Entra ID",
    keys: [oneCertified, twoCertified].map((key) =>
      Object.assign({ kty: "RSA", use: "sig", kid: key["x5t"], ...ofMicrosoft }, key),
    ),
    headers: { ...silent, "cache-control": "max-age=86400, private", "set-cookie": "fpc=1; secure; HttpOnly" },
  },
  {
    name: "Google",
    keys: [
      { kid: hex("a"), n: one["n"], e: "AQAB", kty: "RSA", alg: "RS256", use: "sig" },
      { n: two["n"], alg: "RS256", kid: hex("b"), kty: "RSA", e: "AQAB", use: "sig" },
    ],
    document: { jwks_uri: "https://www.example-apis.com/oauth2/v3/certs" },
    headers: { ...json, "cache-control": "public, max-age=21054, must-revalidate, no-transform", etag: undefined },
  },
  {
    name: "Ory Hydra",
    keys: [{ use: "sig", kty: "RSA", kid: "0d2b1ab1-7a3a-4a8f-9d1d-6f1f4c4b2f5d", alg: "RS256", ...one }],
    headers: silent,
  },
  {
    name: "dex",
    keys: [
      { use: "sig", kty: "RSA", kid: hex("dex a"), alg: "RS256", ...one },
      { use: "sig", kty: "RSA", kid: hex("dex b"), alg: "RS256", ...two },
    ],
    headers: { ...json, "cache-control": "max-age=21600, must-revalidate", etag: undefined },
  },
  {
    name: "SPIRE",
    keys: [
      { kty: "EC", kid: "C6vs25welZOx6WksNYfbMfiw9l96pMnD", crv: "P-256", alg: "ES256", ...ec("spire"), use: "sig" },
      { kty: "RSA", kid: "x7cGBMxQH7vQV0yhSw3w4kFfnuzGUvyS", alg: "RS256", ...one, use: "sig" },
    ],
    document: { authorization_endpoint: "", id_token_signing_alg_values_supported: ["RS256", "ES256", "ES384"] },
    headers: silent,
  },
  {
    name: "a SPIFFE bundle",
    keys: [
      { use: "x509-svid", kty: "EC", ...ec("spiffe x509"), crv: "P-256", x5c: certificate(ecKey("spiffe x509")).x5c },
      { use: "x509-svid", kty: "RSA", ...one, x5c: oneCertified["x5c"] },
      { use: "jwt-svid", kty: "EC", kid: "C6vs25welZOx6WksNYfbMfiw9l96pMnD", ...ec("spiffe jwt") },
    ],
    isBundle: true,
    headers: silent,
  },
  {
    name: "oidc-provider",
    keys: [
      { kty: "RSA", use: "sig", kid: thumb("oidc"), alg: "RS256", e: "AQAB", n: one["n"] },
      { crv: "P-256", ...ec("oidc-provider"), kty: "EC", kid: thumb("oidc ec"), use: "sig", alg: "ES256" },
      { crv: "Ed25519", x: thumb("ed"), kty: "OKP", kid: thumb("oidc ed"), use: "sig", alg: "EdDSA" },
    ],
    document: { id_token_signing_alg_values_supported: ["PS256", "RS256", "ES256", "EdDSA"] },
    headers: { "content-type": "application/jwk-set+json; charset=utf-8", "cache-control": undefined, etag: undefined },
  },
  {
    name: "Kubernetes",
    keys: [{ use: "sig", kty: "RSA", kid: thumb("kubernetes"), alg: "RS256", ...one }],
    document: { ...noLogin, response_types_supported: ["id_token"] },
    headers: { "cache-control": "public, max-age=3600", etag: undefined },
  },
  {
    name: "step-ca",
    keys: [{ use: "sig", kty: "EC", kid: thumb("step"), crv: "P-256", alg: "ES256", ...ec("step") }],
    document: { ...noLogin, id_token_signing_alg_values_supported: es256 },
    headers: silent,
  },
  {
    name: "jwksd",
    keys: [
      { ...ec("jwksd"), kid: thumb("jwksd"), alg: "ES256", use: "sig" },
      { ...ec("jwksd 2"), kid: thumb("jwksd 2"), alg: "ES256", use: "sig" },
      { kty: "RSA", ...two, kid: thumb("jwksd enc"), alg: "RSA-OAEP-256", use: "enc" },
    ],
    document: { ...noLogin, id_token_signing_alg_values_supported: es256 },
  },
  {
    name: "Amazon Cognito",
    keys: [
      { alg: "RS256", e: "AQAB", kid: `${thumb("cognito a")}=`, kty: "RSA", n: one["n"], use: "sig" },
      { alg: "RS256", e: "AQAB", kid: `${thumb("cognito b")}=`, kty: "RSA", n: two["n"], use: "sig" },
    ],
    headers: { ...json, "cache-control": "public, max-age=86400", etag: undefined },
  },
  {
    name: "Sign in with Apple",
    keys: [
      { kty: "RSA", kid: "U0hcLWuLrQ", use: "sig", alg: "RS256", ...one },
      { kty: "RSA", kid: "E6q83RB15n", use: "sig", alg: "RS256", ...two },
    ],
    headers: { "content-type": "application/json;charset=ISO-8859-1", "cache-control": "no-cache", etag: undefined },
  },
  {
    name: "GitHub Actions",
    keys: [
      { kty: "RSA", alg: "RS256", use: "sig", kid: "cc413527-173f-5a05-976e-9c52b1d7b431", ...one },
      { ...twoCertified, kty: "RSA", alg: "RS256", use: "sig", kid: "38826b17-6a30-5f9b-b169-8beb8202f723" },
    ],
    document: noLogin,
    headers: { ...json, "cache-control": "max-age=300, private", etag: 'W/"3a"' },
  },
  {
    name: "authentik",
    keys: [{ alg: "RS256", kid: hex("authentik"), kty: "RSA", use: "sig", ...one, ...chain[0] }],
    document: { issuer: "https://login.example.com" },
    headers: { ...silent, vary: "Accept-Encoding, Cookie" },
  },
  {
    name: "ZITADEL",
    keys: [
      { use: "sig", kty: "RSA", kid: "297348921560989698", alg: "RS256", ...one },
      { use: "sig", kty: "RSA", kid: "297348921577766914", alg: "RS256", ...two },
    ],
    headers: { ...json, "cache-control": "max-age=300, must-revalidate", etag: undefined },
  },
  {
    name: "Duende IdentityServer",
    keys: [
      { kty: "RSA", use: "sig", kid: hex("duende").toUpperCase().slice(0, 32), e: "AQAB", n: one["n"], alg: "RS256" },
    ],
    headers: { "content-type": "application/jwk-set+json; charset=UTF-8", "cache-control": undefined, etag: undefined },
  },
  {
    name: "GitLab",
    keys: [
      { kty: "RSA", kid: thumb("gitlab a"), ...one, use: "sig", alg: "RS256" },
      { kty: "RSA", kid: thumb("gitlab b"), ...two, use: "sig", alg: "RS256" },
    ],
    headers: { ...json, "cache-control": "max-age=0, private, must-revalidate", etag: 'W/"a1"' },
  },
  {
    name: "a provider with a key of each algorithm",
    keys: [
      { kty: "RSA", kid: "rsa-sig", use: "sig", alg: "PS256", ...one },
      { kty: "EC", kid: "ec-384", use: "sig", alg: "ES384", ...withoutPrivate(ecKey("shape", "P-384")) },
      { kty: "EC", kid: "ec-521", use: "sig", alg: "ES512", ...withoutPrivate(ecKey("shape", "P-521")) },
      { kty: "EC", kid: "ec-enc", use: "enc", alg: "ECDH-ES", ...ec("shape enc") },
    ],
    document: { ...noLogin, id_token_signing_alg_values_supported: ["PS256", "ES384", "ES512"] },
  },
];

/** Returns the observations of a provider with this shape. */
export function observedShape({ keys, document = {}, isBundle, headers = {} }: Shape): Observations {
  const all = observed({
    keys,
    headers,
    document: { ...login, id_token_signing_alg_values_supported: rs256, ...document },
  });
  return isBundle === true ? asSet(all) : all;
}
