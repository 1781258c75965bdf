import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import type { Hono } from "hono";
import { Provider as OidcProvider } from "oidc-provider";
import type { KeyManager } from "../../src/rotation/index.ts";
import { chatGpt, published } from "../client/published.ts";
import { type PrivateJwk, ecKey, rsaKey, withoutPrivate } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { newWrappingKey } from "../support/managed.ts";
import { sample } from "../support/samples.ts";
import { temporaryFolder } from "../support/service.ts";
import { compact, read, signature } from "../token/compact.ts";

// The samples in docs/client-documents.md, with the documents of published clients. The clients' keys are this test's own.

const issuer = "https://login.example.com";
const resource = "https://mcp.example.com/mcp";

/** The clients' hosts: documents and key sets, by URL. */
function clientHosts() {
  const documents = new Map<string, object>(published.map(([document]) => [document.client_id, document]));
  const keys = new Map<string, PrivateJwk>([["first", rsaKey()]]);
  return {
    documents,
    keys,
    fetch: async (url: string): Promise<Response> => {
      const jwks = { keys: [...keys].map(([kid, key]) => Object.assign(withoutPrivate(key), { kid, alg: "RS256" })) };
      const found = url === chatGpt.jwks_uri ? jwks : documents.get(url);
      return found === undefined ? new Response(null, { status: 404 }) : Response.json(found);
    },
    /** Returns the parameters with which a client authenticates. */
    credentials({ client_id }: { readonly client_id: string }, audience = issuer): Record<string, string> {
      if (client_id !== chatGpt.client_id) return { client_id };
      const [[kid, key]] = [...keys].slice(-1) as [[string, PrivateJwk]];
      const jti = randomBytes(16).toString("hex");
      const claims = { iss: client_id, sub: client_id, aud: audience, exp: Date.now() / 1000 + 60, jti };
      return {
        client_id,
        client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        client_assertion: compact({ alg: "RS256", kid }, claims, signature("RS256", key)),
      };
    },
  };
}

/** Returns the sample's path, with a `fetch` to the clients' hosts instead of `guardedFetch`. */
async function served(t: TestContext, file: string, changes: Readonly<Record<string, string>>) {
  const hosts = clientHosts();
  const name = `clients ${randomBytes(8).toString("hex")}`;
  Object.assign(globalThis, { [name]: hosts.fetch });
  t.after(() => void Reflect.deleteProperty(globalThis, name));
  const path = await sample(t, file, { "fetch: guardedFetch": `fetch: globalThis["${name}"]`, ...changes });
  return { hosts, path };
}

const verifier = randomBytes(32).toString("base64url");
const pkce = {
  code_challenge: createHash("sha256").update(verifier).digest("base64url"),
  code_challenge_method: "S256",
};

/** Starts the sample and returns functions for the steps of a client. */
async function server(t: TestContext) {
  const { hosts, path } = await served(t, "examples/docs/client-documents.mts", {
    "./keys.db": join(await temporaryFolder(t), "keys.db"),
    'JWKSD_WRAPPING_KEYS = ""': `JWKSD_WRAPPING_KEYS = "${newWrappingKey()}"`,
  });
  const { app, manager } = (await import(path)) as { app: Hono; manager: KeyManager };
  t.after(() => manager.close());
  const authorize = async (document: { client_id: string }, redirectUri: string, more: object = {}) => {
    const parameters = {
      client_id: document.client_id,
      redirect_uri: redirectUri,
      state: "s",
      resource,
      ...pkce,
      ...more,
    };
    return app.request(`/authorize?${new URLSearchParams(parameters).toString()}`);
  };
  const post = async (to: string, form: Record<string, string>) =>
    app.request(to, { method: "POST", body: new URLSearchParams(form) });
  /** Authorizes a client and returns the parameters of its token request. */
  const authorized = async (document: { client_id: string }, redirect_uri: string) => {
    const response = await authorize(document, redirect_uri);
    assert.equal(response.headers.get("content-security-policy"), "frame-ancestors 'none'");
    const page = await response.text();
    const [, request = ""] = /value="([\w-]+)"/.exec(page) ?? [];
    const back = await post("/consent", { request });
    const { searchParams, href } = new URL(back.headers.get("location") ?? "");
    assert.ok(href.startsWith(redirect_uri), href);
    assert.deepEqual([searchParams.get("state"), searchParams.get("iss")], ["s", issuer]);
    const code = searchParams.get("code") ?? "";
    return { page, form: { grant_type: "authorization_code", code, redirect_uri, code_verifier: verifier } };
  };
  const token = async (form: Record<string, string>) => {
    const response = await post("/token", form);
    const body = (await response.json()) as Record<string, string>;
    return { status: response.status, error: body["error"], tokens: body };
  };
  return { hosts, app, authorize, authorized, token };
}

describe("the authorization server with Hono", () => {
  test("says in its metadata what clients look for", async (t) => {
    const { app } = await server(t);
    for (const name of ["openid-configuration", "oauth-authorization-server"]) {
      const metadata = (await (await app.request(`/.well-known/${name}`)).json()) as Record<string, unknown>;
      assert.equal(metadata["client_id_metadata_document_supported"], true);
      assert.deepEqual(metadata["token_endpoint_auth_methods_supported"], ["private_key_jwt", "none"]);
    }
  });

  for (const [document, redirectUri] of published) {
    test(`serves ${document.client_name}: authorization, consent, token, refresh`, async (t) => {
      const { hosts, authorized, token } = await server(t);
      const { page, form } = await authorized(document, redirectUri);
      for (const shown of [document.client_name, new URL(document.client_id).host, new URL(redirectUri).host])
        assert.ok(page.includes(shown), `the page shows ${shown}`);
      assert.equal(page.includes("Any program"), document.client_name === "Claude Code");
      const first = await token({ ...form, ...hosts.credentials(document) });
      assert.equal(first.status, 200);
      const { claims } = read(first.tokens["access_token"] ?? "");
      assert.deepEqual([claims["sub"], claims["aud"], claims["client_id"]], ["alice", resource, document.client_id]);
      const refresh = { grant_type: "refresh_token", refresh_token: first.tokens["refresh_token"] ?? "" };
      assert.equal((await token({ ...refresh, ...hosts.credentials(document) })).status, 200);
      assert.equal((await token({ ...refresh, ...hosts.credentials(document) })).error, "invalid_grant", "used");
      assert.equal((await token({ ...form, ...hosts.credentials(document) })).error, "invalid_grant", "used");
    });
  }

  test("accepts a rotation of ChatGPT's keys; a stolen code is useless without the key", async (t) => {
    const { hosts, authorized, token } = await server(t);
    const [[, redirectUri]] = published;
    const { form } = await authorized(chatGpt, redirectUri);
    assert.equal((await token({ ...form, client_id: chatGpt.client_id })).error, "invalid_client");
    const thief = {
      ...hosts.credentials(chatGpt),
      client_assertion: hosts.credentials(chatGpt, "https://evil.example")["client_assertion"] ?? "",
    };
    assert.equal((await token({ ...form, ...thief })).error, "invalid_client");
    hosts.keys.set("second", rsaKey());
    const first = await token({ ...form, ...hosts.credentials(chatGpt) });
    assert.equal(first.status, 200);
    hosts.keys.delete("first");
    const refresh = { grant_type: "refresh_token", refresh_token: first.tokens["refresh_token"] ?? "" };
    assert.equal((await token({ ...refresh, ...hosts.credentials(chatGpt) })).status, 200);
  });

  test("shows a redirect URI without a host and refuses a client whose key is invalid", async (t) => {
    const { hosts, authorized, token } = await server(t);
    const redirectUri = "com.example:/callback";
    const key = { kty: "EC", crv: "P-256", kid: "first", x: "A".repeat(43), y: "A".repeat(43) };
    const document = {
      client_id: "https://vscode.dev/client.json",
      client_name: "Example",
      redirect_uris: [redirectUri],
      token_endpoint_auth_method: "private_key_jwt",
      jwks: { keys: [key] },
    };
    hosts.documents.set(document.client_id, document);
    const { page, form } = await authorized(document, redirectUri);
    assert.ok(page.includes(redirectUri));
    const { client_id } = document;
    const jti = randomBytes(16).toString("hex");
    const claims = { iss: client_id, sub: client_id, aud: issuer, exp: Date.now() / 1000 + 60, jti };
    const { client_assertion_type } = hosts.credentials(chatGpt);
    const client_assertion = compact({ alg: "ES256", kid: "first" }, claims, signature("ES256", ecKey("first")));
    const { status, error } = await token({
      ...form,
      client_id,
      client_assertion_type: client_assertion_type ?? "",
      client_assertion,
    });
    assert.deepEqual([status, error], [401, "invalid_client"]);
  });

  test("issues tokens for its own API only (RFC 8707 section 2)", async (t) => {
    const { hosts, authorize, authorized, token } = await server(t);
    const other = "https://other.example/mcp";
    const [, [document, redirectUri]] = published;
    const refused = await authorize(document, redirectUri, { resource: other });
    assert.deepEqual([refused.status, await refused.text()], [400, "invalid_target"]);
    const { form } = await authorized(document, redirectUri);
    const sent = { ...form, ...hosts.credentials(document) };
    assert.equal((await token({ ...sent, resource: other })).error, "invalid_target");
    const { tokens } = await token({ ...sent, resource });
    assert.equal(read(tokens["access_token"] ?? "").claims["aud"], resource);
  });

  test("refuses an unregistered redirect URI, a missing PKCE, an unknown host and another user's consent", async (t) => {
    const { authorize, app } = await server(t);
    const [[, redirectUri]] = published;
    assert.equal((await authorize(chatGpt, "https://evil.example/")).status, 400);
    assert.equal((await authorize(chatGpt, redirectUri, { code_challenge: "" })).status, 400);
    const unknown = await authorize({ client_id: "https://evil.example/client.json" }, redirectUri);
    assert.deepEqual([unknown.status, ((await unknown.json()) as { error: string }).error], [401, "invalid_client"]);
    const consent = await app.request("/consent", { method: "POST", body: new URLSearchParams({ request: "x" }) });
    assert.equal(consent.status, 400);
  });
});

describe("the adapter for oidc-provider", () => {
  for (const [document, redirectUri] of published) {
    test(`serves ${document.client_name}: authorization, consent, token`, async (t) => {
      const folder = await temporaryFolder(t);
      const adapter = await sample(t, "examples/docs/oidc-adapter.mts");
      const { hosts, path } = await served(t, "examples/docs/client-documents-oidc.mts", {
        "./oidc-adapter.mts": adapter,
        "./sessions.db": join(folder, "sessions.db"),
      });
      const { configuration } = (await import(path)) as { configuration: object };
      const site = createServer();
      const origin = `http://127.0.0.1:${await listening(t, site)}`;
      site.on("request", new OidcProvider(origin, configuration).callback());

      const cookies = new Map<string, string>();
      const send = async (url: string, form?: Record<string, string>): Promise<Response> => {
        const headers = { cookie: Array.from(cookies, ([name, value]) => `${name}=${value}`).join("; ") };
        const body = form && { method: "POST", body: new URLSearchParams(form) };
        const response = await fetch(url, { redirect: "manual", headers, ...body });
        for (const cookie of response.headers.getSetCookie()) {
          const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
          cookies.set(name, value);
        }
        return response;
      };
      const discovery = (await (await send(`${origin}/.well-known/openid-configuration`)).json()) as Record<
        string,
        unknown
      >;
      assert.equal(discovery["client_id_metadata_document_supported"], true);
      const parameters = {
        client_id: document.client_id,
        redirect_uri: redirectUri,
        response_type: "code",
        scope: "openid",
        ...pkce,
      };
      let url = `${origin}/auth?${new URLSearchParams(parameters).toString()}`;
      const prompts = ["login", "consent"];
      for (let step = 0; step < 10 && url.startsWith(origin); step += 1) {
        const isPrompt = url.includes("/interaction/");
        const prompt = isPrompt ? (prompts.shift() ?? "") : undefined;
        const response = await send(url, prompt === undefined ? undefined : { prompt, login: "alice", password: "x" });
        url = new URL(response.headers.get("location") ?? assert.fail(await response.text()), url).href;
      }
      assert.ok(url.startsWith(redirectUri), url);
      const code = new URL(url).searchParams.get("code") ?? "";
      const form = { grant_type: "authorization_code", code, redirect_uri: redirectUri, code_verifier: verifier };
      const token = async (more: Record<string, string>) =>
        (await (await send(`${origin}/token`, { ...form, ...more })).json()) as Record<string, string>;
      if (document === chatGpt)
        assert.equal((await token({ client_id: chatGpt.client_id }))["error"], "invalid_client");
      assert.match((await token(hosts.credentials(document, origin)))["access_token"] ?? "", /^[\w-]{20,}$/);
    });
  }
});
