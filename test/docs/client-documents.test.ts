import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import type { Hono } from "hono";
import { Provider as OidcProvider } from "oidc-provider";
import type { KeyManager } from "../../src/rotation/index.ts";
import { chatGpt, published } from "../client/published.ts";
import { type PrivateJwk, ecKey, named, rsaKey, withoutPrivate } from "../support/keys.ts";
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
  const requested: string[] = [];
  return {
    documents,
    keys,
    requested,
    fetch: async (url: string): Promise<Response> => {
      requested.push(url);
      const jwks = { keys: [...keys].map(([kid, key]) => Object.assign(withoutPrivate(key), { kid, alg: "RS256" })) };
      const found = url === chatGpt.jwks_uri ? jwks : documents.get(url);
      if (found === undefined) return new Response(null, { status: 404 });
      return Response.json(found, { headers: { "Cache-Control": "max-age=20" } });
    },
    /** Returns the parameters with which a client authenticates. */
    credentials({ client_id }: { readonly client_id: string }, audience = issuer): Record<string, string> {
      if (client_id !== chatGpt.client_id) return { client_id };
      const [[kid, key]] = [...keys].slice(-1) as [[string, PrivateJwk]];
      return assertionOf(client_id, kid, key, audience);
    },
  };
}

/** Returns the parameters of a client that authenticates with this key. */
function assertionOf(clientId: string, kid: string, key: PrivateJwk, audience = issuer): Record<string, string> {
  const jti = randomBytes(16).toString("hex");
  const claims = { iss: clientId, sub: clientId, aud: audience, exp: Date.now() / 1000 + 60, jti };
  const alg = key.kty === "RSA" ? "RS256" : "ES256";
  return {
    client_id: clientId,
    client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    client_assertion: compact({ alg, kid }, claims, signature(alg, key)),
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
  test("serves the metadata that clients look for", async (t) => {
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

  test("keeps working when ChatGPT's keys rotate, and a stolen code is useless without the key", async (t) => {
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

  test("shows a private-use redirect URI in full and refuses a client whose key is invalid", async (t) => {
    const { hosts, authorized, token } = await server(t);
    const redirectUri = "com.example://chatgpt.com/callback";
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
    const sent = { ...form, ...assertionOf(document.client_id, "first", ecKey("first")) };
    const { status, error } = await token(sent);
    assert.deepEqual([status, error], [401, "invalid_client"]);
  });

  test("issues tokens only for its own API (RFC 8707 section 2)", async (t) => {
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

  test("accepts a code once, even if a simultaneous second request also contains a refresh token", async (t) => {
    const { hosts, authorized, token } = await server(t);
    const [, [document, redirectUri]] = published;
    const { form: earlier } = await authorized(document, redirectUri);
    const { tokens } = await token({ ...earlier, ...hosts.credentials(document) });
    const { form } = await authorized(document, redirectUri);
    const sent = { ...form, ...hosts.credentials(document), refresh_token: tokens["refresh_token"] ?? "" };
    const responses = await Promise.all([token(sent), token(sent)]);
    const statuses = responses.map(({ status }) => status);
    assert.deepEqual(new Set(statuses), new Set([200, 400]));
    const refresh = { grant_type: "refresh_token", refresh_token: tokens["refresh_token"] ?? "" };
    assert.equal((await token({ ...refresh, ...hosts.credentials(document) })).status, 200);
  });

  test("rejects a second authentication method (RFC 6749 section 2.3)", async (t) => {
    const { hosts, app, authorized, token } = await server(t);
    const [, [document, redirectUri]] = published;
    const { form } = await authorized(document, redirectUri);
    const sent = { ...form, ...hosts.credentials(document) };
    const request = { method: "POST", headers: { Authorization: "Basic YTpi" }, body: new URLSearchParams(sent) };
    assert.equal((await app.request("/token", request)).status, 400);
    assert.equal((await token(sent)).status, 200);
  });

  test("rejects an unregistered redirect URI, a request without PKCE, unknown hosts and methods, and another user's consent", async (t) => {
    const { hosts, authorize, app } = await server(t);
    const [[, redirectUri]] = published;
    assert.equal((await authorize(chatGpt, "https://evil.example/")).status, 400);
    assert.equal((await authorize(chatGpt, redirectUri, { code_challenge: "" })).status, 400);
    const unknown = await authorize({ client_id: "https://evil.example/client.json" }, redirectUri);
    assert.deepEqual([unknown.status, ((await unknown.json()) as { error: string }).error], [401, "invalid_client"]);
    const mutualTls = {
      ...chatGpt,
      client_id: `${chatGpt.client_id}?`,
      token_endpoint_auth_method: "tls_client_auth",
      token_endpoint_auth_methods_supported: ["tls_client_auth"],
    };
    hosts.documents.set(mutualTls.client_id, mutualTls);
    const method = await authorize(mutualTls, redirectUri);
    assert.deepEqual([method.status, ((await method.json()) as { error: string }).error], [400, "unauthorized_client"]);
    const consent = await app.request("/consent", { method: "POST", body: new URLSearchParams({ request: "x" }) });
    assert.equal(consent.status, 400);
  });
});

/** Starts oidc-provider with the sample's configuration and returns functions for the steps of a client. */
async function oidcServer(t: TestContext, registered: readonly object[] = []) {
  const adapter = await sample(t, "examples/docs/oidc-adapter.mts");
  const { hosts, path } = await served(t, "examples/docs/client-documents-oidc.mts", {
    "./oidc-adapter.mts": adapter,
    "./sessions.db": join(await temporaryFolder(t), "sessions.db"),
    "= []; // registered": `= ${JSON.stringify(registered)}; // registered`,
  });
  const { configuration } = (await import(path)) as { configuration: object };
  const site = createServer();
  const origin = `http://127.0.0.1:${await listening(t, site)}`;
  const features = { introspection: { enabled: true } };
  site.on("request", new OidcProvider(origin, { ...configuration, features }).callback());

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
  const post = async (to: string, form: Record<string, string>) => {
    const body = (await (await send(`${origin}${to}`, form)).json()) as Record<string, unknown>;
    const { error, active, access_token, refresh_token } = body;
    return { error, active, access_token: String(access_token), refresh_token: String(refresh_token) };
  };
  /** Authorizes a client and returns the parameters of its token request, and the prompts that the user saw. */
  const authorized = async (
    { client_id }: { client_id: string },
    redirect_uri: string,
    more: object = {},
    onPrompt: (prompt: string) => unknown = () => {},
  ) => {
    const parameters = { client_id, redirect_uri, response_type: "code", scope: "openid", ...pkce, ...more };
    let url = `${origin}/auth?${new URLSearchParams(parameters).toString()}`;
    const prompts: string[] = [];
    for (let step = 0; step < 10 && url.startsWith(origin); step += 1) {
      let form: Record<string, string> | undefined;
      if (url.includes("/interaction/")) {
        const [, prompt = ""] = /name="prompt" value="(\w+)"/.exec(await (await send(url)).text()) ?? [];
        prompts.push(prompt);
        onPrompt(prompt);
        form = { prompt, login: "alice", password: "x" };
      }
      const response = await send(url, form);
      const location = response.headers.get("location");
      if (location === null) return { prompts, refusal: await response.text(), form: {} };
      url = new URL(location, url).href;
    }
    assert.ok(url.startsWith(redirect_uri), url);
    const code = new URL(url).searchParams.get("code") ?? "";
    const form = { grant_type: "authorization_code", code, redirect_uri, code_verifier: verifier };
    return { prompts, refusal: undefined, form };
  };
  const token = (form: Record<string, string>) => post("/token", form);
  return { hosts, origin, send, post, authorized, token };
}

describe("the oidc-provider adapter", () => {
  for (const [document, redirectUri] of published) {
    test(`serves ${document.client_name}: authorization, consent, token`, async (t) => {
      const { hosts, origin, send, authorized, token } = await oidcServer(t);
      const discovery = await (await send(`${origin}/.well-known/openid-configuration`)).json();
      assert.equal((discovery as Record<string, unknown>)["client_id_metadata_document_supported"], true);
      const { prompts, form } = await authorized(document, redirectUri);
      assert.deepEqual(prompts, ["login", "consent"]);
      const tokens = await token({ ...form, ...hosts.credentials(document, origin) });
      assert.match(tokens.access_token, /^[\w-]{20,}$/);
    });
  }

  const [[, redirectUri]] = published;
  const { client_id } = chatGpt;
  const { token_endpoint_auth_methods_supported: _, token_endpoint_auth_signing_alg: __, ...confidential } = chatGpt;
  const downgraded = { ...confidential, token_endpoint_auth_method: "none" };

  test("refuses a downgrade that is published during consent, before the code is exchanged, or before a refresh", async (t) => {
    t.mock.timers.enable({ apis: ["Date"], now: Date.now() });
    const { hosts, origin, authorized, token } = await oidcServer(t);
    const publish = (document: object): void => {
      hosts.documents.set(client_id, document);
      t.mock.timers.tick(21_000);
    };
    const during = await authorized(chatGpt, redirectUri, {}, (prompt) => prompt === "consent" && publish(downgraded));
    assert.match(during.refusal ?? "", /interaction session not found/);

    publish(chatGpt);
    const { form } = await authorized(chatGpt, redirectUri);
    assert.equal((await token({ ...form, client_id })).error, "invalid_client", "without an assertion");
    publish(downgraded);
    assert.equal((await token({ ...form, client_id })).error, "invalid_grant");

    publish(chatGpt);
    const offline = { scope: "openid offline_access", prompt: "consent" };
    const again = await authorized(chatGpt, redirectUri, offline);
    const { refresh_token } = await token({ ...again.form, ...hosts.credentials(chatGpt, origin) });
    const refresh = { grant_type: "refresh_token", refresh_token };
    publish(downgraded);
    assert.equal((await token({ ...refresh, client_id })).error, "invalid_grant");
    publish(chatGpt);
    const { error } = await token({ ...refresh, ...hosts.credentials(chatGpt, origin) });
    assert.equal(error, undefined, "only the changed document is refused");
  });

  test("remembers consent until the document changes; after that, introspection reports the client's tokens as inactive", async (t) => {
    t.mock.timers.enable({ apis: ["Date"], now: Date.now() });
    const key = named("api");
    const api = {
      client_id: "api",
      token_endpoint_auth_method: "private_key_jwt",
      jwks: { keys: [withoutPrivate(key)] },
      redirect_uris: [],
      response_types: [],
      grant_types: [],
    };
    const { hosts, origin, authorized, token, post } = await oidcServer(t, [api]);
    const { form } = await authorized(chatGpt, redirectUri);
    assert.deepEqual((await authorized(chatGpt, redirectUri)).prompts, []);
    const issued = await token({ ...form, ...hosts.credentials(chatGpt, origin) });
    const introspect = async () => {
      const sent = { token: issued.access_token, ...assertionOf("api", "api", key, origin) };
      return (await post("/token/introspection", sent)).active;
    };
    assert.equal(await introspect(), true);
    for (const document of [{ ...chatGpt, client_name: "Bank" }, {}]) {
      hosts.documents.set(client_id, document);
      t.mock.timers.tick(21_000);
      assert.equal(await introspect(), false, JSON.stringify(document));
    }
    hosts.documents.set(client_id, { ...chatGpt, client_name: "Bank" });
    t.mock.timers.tick(21_000);
    assert.deepEqual((await authorized(chatGpt, redirectUri)).prompts, ["consent"]);
  });

  test("accepts a client's new key a minute after it last fetched the client's keys", async (t) => {
    t.mock.timers.enable({ apis: ["Date"], now: Date.now() });
    const { hosts, origin, authorized, token } = await oidcServer(t);
    const next = async () => {
      const { form } = await authorized(chatGpt, redirectUri);
      return await token({ ...form, ...hosts.credentials(chatGpt, origin) });
    };
    assert.equal((await next()).error, undefined);
    hosts.keys.set("second", rsaKey());
    assert.equal((await next()).error, "invalid_client");
    t.mock.timers.tick(60_000);
    assert.equal((await next()).error, undefined);
    hosts.keys.delete("first");
    t.mock.timers.tick(60_000);
    assert.equal((await next()).error, undefined);
  });

  test("does not fetch a client's sector identifier, which `allow` does not cover", async (t) => {
    const { hosts, authorized } = await oidcServer(t);
    const url = "https://victim.example/sector.json";
    hosts.documents.set(client_id, { ...chatGpt, sector_identifier_uri: url });
    const { prompts } = await authorized(chatGpt, redirectUri);
    assert.deepEqual([prompts, hosts.requested.includes(url)], [["login", "consent"], false]);
  });

  test("leaves registered clients alone, even one whose identifier is a document's URL", async (t) => {
    t.mock.timers.enable({ apis: ["Date"], now: Date.now() });
    for (const registered of [client_id, "app"]) {
      const client = { client_id: registered, redirect_uris: [redirectUri], token_endpoint_auth_method: "none" };
      const { hosts, authorized, token } = await oidcServer(t, [client]);
      const { form } = await authorized(client, redirectUri, {}, () => {
        hosts.documents.set(client_id, downgraded);
        t.mock.timers.tick(21_000);
      });
      const { error } = await token({ ...form, client_id: registered });
      assert.equal(error, undefined, registered);
    }
  });
});
