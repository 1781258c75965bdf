import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { oauthProvider } from "@better-auth/oauth-provider";
import { betterAuth } from "better-auth/minimal";
import { jwt } from "better-auth/plugins/jwt";
import { decodeJwt, decodeProtectedHeader } from "jose";
import { createProvider, localSigner } from "../../src/index.ts";
import type { AuthConfig } from "../../src/provider/adapters/better-auth-lifetimes.ts";
import { checkTokenLifetimes, jwtOptions } from "../../src/provider/adapters/better-auth.ts";
import { named } from "../support/keys.ts";

const issuer = "https://login.example.com/api/auth";
const audience = "https://api.example.com";
const entry = async (kid: string) => ({ kid, signer: await localSigner(named(kid)) });
const provider = await createProvider({
  issuer,
  keyset: [await entry("new"), await entry("old")],
  encryptionKeyset: [{ kid: "enc", publicKey: { ...named("enc"), d: undefined } }],
  maxTokenLifetimeSeconds: 3600,
});
const keys = jwtOptions(provider);
const auth = betterAuth({
  baseURL: "https://login.example.com",
  secret: "a better-auth secret with more than 32 characters",
  plugins: [jwt({ ...keys, jwt: { ...keys.jwt, audience } })],
});
const soon = Math.floor(Date.now() / 1000) + 600;
const verified = async (token: string): Promise<unknown> => (await auth.api.verifyJWT({ body: { token } })).payload;

test("better-auth's signJWT and verifyJWT work with the provider's keys", async () => {
  const { token } = await auth.api.signJWT({ body: { payload: { sub: "alice", nonce: undefined } } });
  assert.deepEqual(decodeProtectedHeader(token), { alg: "ES256", kid: "new", typ: "JWT" });
  const { iat = 0, exp, ...claims } = decodeJwt(token);
  assert.deepEqual(claims, { sub: "alice", aud: audience, iss: issuer });
  assert.equal(exp, iat + 900);
  assert.deepEqual(await verified(token), decodeJwt(token));
});

test("verifyJWT accepts a token signed with a retiring key, but not one signed with an unpublished key", async () => {
  for (const [kid, expected] of [
    ["old", "alice"],
    ["other", undefined],
    ["enc", undefined],
  ] as const) {
    const other = await createProvider({ issuer, keyset: [await entry(kid)] });
    const token = await other.sign({ sub: "alice", aud: audience }, { lifetimeSeconds: 60 });
    assert.equal(((await verified(token)) as { sub?: string } | null)?.sub, expected, kid);
  }
});

test("signs better-auth's claims unchanged, with the typ that better-auth requires", async () => {
  const claims = { iss: issuer, sub: "a", aud: "client", iat: soon - 600, exp: soon, sid: "s", nbf: undefined };
  const token = await keys.jwt.sign(claims, { typ: "logout+jwt" }, { signingAlgorithm: "ES256" });
  assert.equal(decodeProtectedHeader(token).typ, "logout+jwt");
  const { nbf: _, ...signed } = claims;
  assert.deepEqual(decodeJwt(token), signed);
});

const codeOf = (signed: Promise<unknown>): Promise<unknown> =>
  signed.then(
    () => "signed",
    (error: { code?: string; message: string }) => error.code ?? error.message,
  );

test("refuses to sign tokens that verifiers would reject", async () => {
  const claims = { iss: issuer, sub: "a", aud: "client", exp: soon };
  const rows = [
    [keys.jwt.sign({ ...claims, iss: "https://login.example.com" }), "ERR_CLAIMS_INVALID"],
    [keys.jwt.sign({ ...claims, exp: soon + 36_000 }), "ERR_CLAIMS_INVALID"],
    [keys.jwt.sign(claims, {}, { signingAlgorithm: "EdDSA" }), "ERR_OPTION_INVALID"],
    [keys.jwt.sign(claims, {}, { signingKeyId: "old" }), "ERR_OPTION_INVALID"],
    [keys.jwt.sign(claims, {}, { signingKeyId: undefined }), "signed"],
    // Without `sign`, better-auth would search for its own private key.
    [auth.api.signJWT({ body: { payload: claims, overrideOptions: { jwt: {} } } }), "Unexpected end of JSON input"],
  ] as const;
  for (const [signed, expected] of rows) assert.equal(await codeOf(signed), expected);
});

const withProvider = (more: object = {}) => oauthProvider({ loginPage: "/login", consentPage: "/consent", ...more });
const withJwt = (expirationTime: string | Date) => jwt({ jwt: { expirationTime } });

describe("token lifetimes are compared with the policy at startup", () => {
  const short = { idTokenExpiresIn: 3600 };
  const api = (accessTokenTtl: number) => ({ ...short, resources: [{ identifier: audience, accessTokenTtl }] });
  const rows: [name: string, plugin: NonNullable<AuthConfig["plugins"]>[number], message: RegExp | undefined][] = [
    ["ID tokens by default", withProvider(), /idTokenExpiresIn is 36000 s, but must be at most 3600 s/],
    ["short-lived ID tokens", withProvider(short), undefined],
    ["ID tokens that jwksd does not sign", withProvider({ disableJwtPlugin: true }), undefined],
    ["access tokens", withProvider({ ...short, accessTokenExpiresIn: 3601 }), /accessTokenExpiresIn is 3601 s/],
    [
      "access tokens for machines",
      withProvider({ ...short, m2mAccessTokenExpiresIn: 7200 }),
      /m2mAccessToken.* is 7200 s/,
    ],
    ["access tokens for a resource", withProvider(api(3601)), /accessTokenTtl of https:\/\/api.example.com is 3601 s/],
    ["short-lived access tokens for a resource", withProvider(api(300)), undefined],
    ["tokens from /token by default", jwt(), undefined],
    ["tokens from /token", withJwt("61m"), /jwt.expirationTime is 3660 s/],
    ["tokens from /token, with the unit as a word", withJwt("2 hours"), /jwt.expirationTime is 7200 s/],
    ["tokens from /token, in months", withJwt("1mo"), /jwt.expirationTime is 2592000 s/],
    ["tokens from /token, in capitals", withJwt("+2 Hours"), /jwt.expirationTime is 7200 s/],
    ["tokens from /token, with a string that is not a duration", withJwt("soon"), /must be a duration such as "15m"/],
    ["short-lived tokens from /token", withJwt("1h"), undefined],
    ["a time, which is checked when a token is signed", withJwt(new Date(0)), undefined],
  ];
  for (const [name, plugin, message] of rows) {
    test(name, () => {
      const auth = betterAuth({
        baseURL: "https://login.example.com",
        plugins: (plugin.id === "jwt" ? [plugin] : [jwt(keys), plugin]) as never,
      });
      const check = (): void => checkTokenLifetimes({ maxTokenLifetimeSeconds: 3600 }, auth.options);
      if (message === undefined) check();
      else assert.throws(check, { name: "ConfigError", code: "ERR_OPTION_INVALID", message });
    });
  }
});
