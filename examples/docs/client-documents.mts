// client-documents.mts: an authorization server for clients that it has never met
import { createHash, randomUUID } from "node:crypto";
import { Hono } from "hono";
import { html } from "hono/html";
import * as jwksd from "jwksd";
import { guardedFetch } from "jwksd/node";
import { createKeyManager } from "jwksd/rotation";
import { sqliteStore } from "jwksd/store/sqlite";

const issuer = "https://login.example.com";
const api = "https://mcp.example.com/mcp"; // the audience of access tokens, and the only resource
const { JWKSD_WRAPPING_KEYS = "" } = process.env;
const allow = ["chatgpt.com", "claude.ai", "vscode.dev", "www.mcpjam.com"]; // hosts of clients; all of them: () => true
const documents = jwksd.createClientDocuments({ issuer, fetch: guardedFetch, allow, publicClients: true });
const clients = jwksd.createClientVerifier({ issuer, documents });

const store = sqliteStore("./keys.db");
export const manager = await createKeyManager({ issuer, store, wrappingKeys: JWKSD_WRAPPING_KEYS });
const metadata = {
  authorization_endpoint: `${issuer}/authorize`,
  token_endpoint: `${issuer}/token`,
  response_types_supported: ["code"],
  grant_types_supported: ["authorization_code", "refresh_token"],
  code_challenge_methods_supported: ["S256"],
  subject_types_supported: ["public"],
  authorization_response_iss_parameter_supported: true,
  ...documents.metadata,
};
const provider = await jwksd.createProvider({ keys: manager, metadata });

const sha256 = (text: string) => createHash("sha256").update(text).digest("base64url");
const signedInUser = () => "alice"; // your login
const isApi = (resources: string[] = []) => resources.every((resource) => resource === api); // RFC 8707
type Grant = Pick<jwksd.ResolvedClient, "clientId" | "method" | "fingerprint"> & { sub: string };
type Code = Grant & Record<"redirectUri" | "challenge" | "state", string>;
// For real use: a database, with an expiry of 60 s for a code.
const [requests, codes, refreshTokens] = [new Map<string, Code>(), new Map<string, Code>(), new Map<string, Grant>()];

export const app = new Hono();
for (const path of ["/.well-known/*", "/jwks"]) app.get(path, (c) => provider.fetch(c.req.raw));

app.get("/authorize", async (c) => {
  const { client_id = "", redirect_uri = "", code_challenge: challenge = "", state = "" } = c.req.query();
  const client = await documents.resolve(client_id);
  if (!jwksd.isRegisteredRedirectUri(redirect_uri, client.redirectUris)) return c.text("unknown redirect_uri", 400);
  if (c.req.query("code_challenge_method") !== "S256" || challenge === "") return c.text("PKCE is required", 400);
  if (!isApi(c.req.queries("resource"))) return c.text("invalid_target", 400);
  const { clientId, method, fingerprint } = client; // the method is fixed from here on
  const id = randomUUID();
  const sub = signedInUser();
  requests.set(id, { clientId, method, fingerprint, sub, redirectUri: redirect_uri, challenge, state });
  const warning = client.warnings.includes("loopback") ? "Any program on this computer can claim to be it." : "";
  c.header("Content-Security-Policy", "frame-ancestors 'none'"); // no other site can have its visitors click on Allow
  return c.html(
    html`<form method="post" action="/consent">
      <p>Allow ${client.name} (${new URL(clientId).host}) to use ${api} as ${sub}? ${warning}</p>
      <p>You will return to ${/^https?:/.test(redirect_uri) ? new URL(redirect_uri).host : redirect_uri}.</p>
      <button name="request" value="${id}">Allow</button>
    </form>`,
  );
});

app.post("/consent", async (c) => {
  const id = new URLSearchParams(await c.req.text()).get("request") ?? "";
  const request = requests.get(id);
  if (request?.sub !== signedInUser() || !requests.delete(id)) return c.text("unknown request", 400);
  documents.prove(request.clientId);
  const code = randomUUID();
  codes.set(code, request);
  const target = new URL(request.redirectUri);
  for (const [name, value] of Object.entries({ code, state: request.state, iss: issuer }))
    if (value !== "") target.searchParams.set(name, value);
  return c.redirect(target.href);
});

app.post("/token", async (c) => {
  if (c.req.header("Authorization") !== undefined) return c.json({ error: "invalid_request" }, 400);
  const form = new URLSearchParams(await c.req.text());
  const get = (name: string) => form.get(name) ?? "";
  const isCode = get("grant_type") === "authorization_code";
  const code = isCode ? codes.get(get("code")) : undefined;
  const grant = isCode ? code : refreshTokens.get(get("refresh_token"));
  if (grant === undefined) return c.json({ error: "invalid_grant" }, 400);
  const client = await clients.authenticate(form, grant);
  if (!isApi(form.getAll("resource"))) return c.json({ error: "invalid_target" }, 400);
  const isOnce = isCode ? codes.delete(get("code")) : refreshTokens.delete(get("refresh_token"));
  const isPkce = code === undefined || sha256(get("code_verifier")) === code.challenge;
  const isSame = code === undefined || get("redirect_uri") === code.redirectUri;
  // A client that changed needs a new consent. Choose the parts that matter to you.
  if (!isOnce || !isPkce || !isSame || client.changed.length > 0) return c.json({ error: "invalid_grant" }, 400);
  const { clientId, method, fingerprint, sub } = grant;
  const claims = { sub, aud: api, client_id: clientId };
  const access_token = await provider.sign(claims, { typ: "at+jwt", lifetimeSeconds: 300 });
  const refresh_token = randomUUID();
  refreshTokens.set(refresh_token, { clientId, method, fingerprint, sub });
  const body = { access_token, token_type: "Bearer", expires_in: 300, refresh_token };
  return c.json(body, 200, { "Cache-Control": "no-store" });
});

app.onError((error, c) => {
  if (error instanceof jwksd.FetchError) return c.json({ error: "temporarily_unavailable" }, 503, error.headers);
  if (error instanceof jwksd.TokenError && error.retryable) return c.json({ error: "temporarily_unavailable" }, 503);
  const isToken = error instanceof jwksd.TokenError && error.status === 401;
  if (error instanceof jwksd.ClientDocumentError && error.code === "ERR_CLIENT_METHOD" && c.req.path === "/authorize")
    return c.json({ error: "unauthorized_client", error_description: error.message }, 400);
  // KeyMaterialError: the client's key is invalid.
  if (!isToken && !(error instanceof jwksd.ClientDocumentError || error instanceof jwksd.KeyMaterialError)) throw error;
  return c.json({ error: "invalid_client", error_description: error.message.replaceAll('"', "'") }, 401);
});
