import assert from "node:assert/strict";
import { createServer } from "node:http";
import { DatabaseSync } from "node:sqlite";
import { type TestContext, test } from "node:test";
import { mcp, requireMcpAuth } from "@better-auth/mcp";
import { type OAuthClientProvider, auth as authorize } from "@modelcontextprotocol/sdk/client/auth.js";
import type { OAuthClientInformationMixed, OAuthTokens } from "@modelcontextprotocol/sdk/shared/auth.js";
import { betterAuth } from "better-auth";
import { getMigrations } from "better-auth/db/migration";
import { toNodeHandler } from "better-auth/node";
import { jwt } from "better-auth/plugins";
import { decodeProtectedHeader } from "jose";
import { createProvider, localSigner } from "../../src/index.ts";
import { jwtOptions } from "../../src/provider/adapters/better-auth.ts";
import { named } from "../support/keys.ts";
import { listening } from "../support/listening.ts";

const entry = async (kid: string) => ({ kid, signer: await localSigner(named(kid)) });

/** Starts an MCP server that is its own authorization server. It has two keys; the first one signs. */
async function start(t: TestContext) {
  const server = createServer();
  const origin = `http://127.0.0.1:${await listening(t, server)}`;
  const issuer = `${origin}/api/auth`;
  const keyset = [await entry("first"), await entry("second")];
  const provider = await createProvider({ issuer, keyset, maxTokenLifetimeSeconds: 36_000 }, { discovery: false });
  const auth = betterAuth({
    baseURL: origin,
    secret: "a better-auth secret with more than 32 characters",
    database: new DatabaseSync(":memory:"),
    logger: { disabled: true },
    rateLimit: { enabled: false },
    emailAndPassword: { enabled: true },
    plugins: [
      jwt({ ...jwtOptions(provider), disableSettingJwtHeader: true }),
      mcp({
        loginPage: "/login",
        consentPage: "/consent",
        resource: `${origin}/mcp`,
        allowDynamicClientRegistration: true,
        allowUnauthenticatedClientRegistration: true,
      }),
    ],
  });
  await (await getMigrations(auth.options)).runMigrations();
  const tool = requireMcpAuth(auth, async (_request, { sub }) => Response.json({ sub }), { resource: `${origin}/mcp` });
  const [tools, others] = [toNodeHandler(tool), toNodeHandler(auth)];
  server.on("request", (request, response) => {
    const handler = request.url === "/mcp" ? tools : others;
    provider.node(request, response, () => void handler(request, response));
  });
  return { origin, issuer, provider, keyset };
}

/** Creates an MCP client whose user signs up at the issuer and consents. */
function clientOf(issuer: string) {
  let [information, tokens, verifier] = [
    undefined as OAuthClientInformationMixed | undefined,
    undefined as OAuthTokens | undefined,
    "",
  ];
  const redirectUrl = "https://client.example/callback";
  let code = "";
  const browse = async (path: string, cookie: string, body?: object): Promise<Response> => {
    const headers = { cookie, origin: new URL(issuer).origin, "content-type": "application/json" };
    const request = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
    return fetch(new URL(path, issuer), { redirect: "manual", headers, ...request });
  };
  const provider: OAuthClientProvider = {
    redirectUrl,
    clientMetadata: {
      redirect_uris: [redirectUrl],
      token_endpoint_auth_method: "none",
      scope: "openid offline_access",
    },
    clientInformation: () => information,
    saveClientInformation: (given) => void (information = given),
    tokens: () => tokens,
    saveTokens: (given) => void (tokens = given),
    saveCodeVerifier: (given) => void (verifier = given),
    codeVerifier: () => verifier,
    async redirectToAuthorization(url) {
      const account = { name: "ann", email: "ann@client.example", password: "ann's password" };
      const signedUp = await browse(`${issuer}/sign-up/email`, "", account);
      const cookie = signedUp.headers
        .getSetCookie()
        .map((line) => line.split(";")[0])
        .join("; ");
      const authorization = await browse(url.href, cookie);
      // This is not a browser navigation, so the redirect target is in the body.
      const { search } = new URL(((await authorization.json()) as { url: string }).url, issuer);
      const consented = await browse(`${issuer}/oauth2/consent`, cookie, {
        accept: true,
        oauth_query: search.slice(1),
      });
      const { url: back = "" } = (await consented.json()) as { url?: string };
      code = new URL(back).searchParams.get("code") ?? "";
    },
  };
  return { provider, tokens: () => tokens ?? assert.fail("no tokens"), code: () => code };
}

const kids = ({ id_token: idToken = "", access_token: accessToken }: OAuthTokens) =>
  [idToken, accessToken].map((token) => decodeProtectedHeader(token).kid);

test("with better-auth's mcp plugin, an MCP client completes discovery, login, refresh and calls while the keys change", async (t) => {
  const { origin, issuer, provider, keyset } = await start(t);
  const resource = `${origin}/mcp`;
  const client = clientOf(issuer);
  const scope = "openid offline_access";
  const call = async (token: string): Promise<number> =>
    (await fetch(resource, { headers: { authorization: `Bearer ${token}` } })).status;
  const checked = async ({ id_token: idToken = "", access_token: accessToken }: OAuthTokens): Promise<void> => {
    const { client_id: audience } = (await client.provider.clientInformation()) ?? assert.fail();
    const id = await provider.verify(idToken, { audience });
    const access = await provider.verify(accessToken, { audience: resource, typ: "at+jwt" });
    assert.deepEqual([id.claims.iss, access.claims.sub], [issuer, id.claims.sub]);
    assert.equal(await call(accessToken), 200);
    const userInfo = await fetch(`${issuer}/oauth2/userinfo`, { headers: { authorization: `Bearer ${accessToken}` } });
    assert.equal(((await userInfo.json()) as { sub?: string }).sub, id.claims.sub);
  };

  assert.equal(await authorize(client.provider, { serverUrl: resource, scope }), "REDIRECT");
  const result = await authorize(client.provider, { serverUrl: resource, scope, authorizationCode: client.code() });
  assert.equal(result, "AUTHORIZED");
  const first = client.tokens();
  assert.deepEqual(kids(first), ["first", "first"]);
  await checked(first);

  await provider.update({ keyset: keyset.toReversed() });
  assert.equal(await authorize(client.provider, { serverUrl: resource, scope }), "AUTHORIZED");
  const second = client.tokens();
  assert.deepEqual(kids(second), ["second", "second"]);
  await checked(second);
  assert.equal(await call(first.access_token), 200);
});
