import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { type IncomingMessage, request as plainRequest } from "node:http";
import { createServer, request as send } from "node:https";
import { connect } from "node:net";
import { type TestContext, describe, test } from "node:test";
import type { TLSSocket } from "node:tls";
import { decodeJwt } from "jose";
import { examine } from "../../src/doctor/index.ts";
import { verify } from "../../src/index.ts";
import { hostileNames } from "../../src/testing/faulty-sets.ts";
import {
  type TestIssuer,
  createSenderConstrainedClient,
  createTestIssuer,
  tokenFaults,
} from "../../src/testing/index.ts";
import { type BearerGuardOptions, createBearerGuard } from "../../src/verify/bearer/index.ts";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { observed } from "../doctor/observed.ts";
import { listening } from "../support/listening.ts";
import { eventually, freePort, spawnCli } from "../support/service.ts";
import { unhandledRejections } from "../support/unhandled.ts";
import { exchange } from "../support/wire.ts";
import { verdict } from "../token/compact.ts";
import { refusalTable, refusalsOf } from "./refusals.ts";

const algorithms = ["ES256", "RS256", "PS256", "EdDSA"] as const;

const guardOf = ({ issuer, audience, fetch }: TestIssuer, more: Partial<BearerGuardOptions> = {}) =>
  createBearerGuard({ issuer, audience, keySet: { fetch }, ...more });

const peerOf = ({ socket }: { socket: TLSSocket }) => socket.getPeerCertificate().raw;

/** Returns the status with which a guard responds. */
async function statusOf(
  bearer: ReturnType<typeof createBearerGuard>,
  token: string,
  headers: object = {},
): Promise<number> {
  const init = { headers: { Authorization: `Bearer ${token}`, ...headers } };
  const auth = await bearer.check(new Request("https://api.example.com/orders", init));
  return auth instanceof Response ? auth.status : 200;
}

/** Returns a function that verifies a token and returns the outcome of `verify`. */
const verdicts = ({ issuer, audience, fetch }: TestIssuer) => {
  const keys = createRemoteKeySet({ issuer, fetch });
  return async (token: Promise<string>) =>
    verdict(verify(await token, { keys, issuer, audience, algorithms, typ: "at+jwt" }));
};

describe("a token", () => {
  test("without a fault is valid with each algorithm and has the given claims", async () => {
    const issuer = await createTestIssuer({ algorithms, claims: { tenant: "a", scope: "x" } });
    const verdictOn = verdicts(issuer);
    for (const alg of algorithms) assert.equal(await verdictOn(issuer.token({}, { alg })), "accepted", alg);
    const token = await issuer.token({ scope: "orders:read", sub: undefined });
    const auth = await guardOf(issuer).check(
      new Request("https://api.example.com/", { headers: { Authorization: `Bearer ${token}` } }),
    );
    assert.ok(!(auth instanceof Response));
    const { tenant, scope, sub } = auth.claims as Record<string, unknown>;
    assert.deepEqual({ tenant, scope, sub }, { tenant: "a", scope: "orders:read", sub: undefined });
  });

  test("with a fault is rejected with the fault's code (docs/testing.md lists other verifiers' results)", async (t) => {
    const refusals = await refusalsOf(t);
    assert.equal(new Set(Object.values(refusals.valid)).size, 1, JSON.stringify(refusals.valid));
    const codes = Object.fromEntries(Object.entries(tokenFaults).map(([name, { code }]) => [name, code]));
    const { valid: _, ...rows } = refusals;
    assert.deepEqual(Object.fromEntries(Object.entries(rows).map(([name, { jwksd }]) => [name, jwksd])), codes);
    const page = await readFile(new URL("../../docs/testing.md", import.meta.url), "utf8");
    const [, table] =
      /<!-- table: node test\/testing\/refusals\.ts -->\n\n([^]*?)\n\n<!-- end of table -->/.exec(page) ?? [];
    assert.equal(table, refusalTable(refusals), "node test/testing/refusals.ts prints it");
  });

  test("with a fault gets a 401 from the guard", async () => {
    const issuer = await createTestIssuer();
    const bearer = guardOf(issuer);
    for (const fault of Object.keys(tokenFaults))
      assert.equal(await statusOf(bearer, await issuer.token({}, { [fault]: true })), 401, fault);
  });

  test("may have two faults, but not an unknown one", async () => {
    const issuer = await createTestIssuer();
    assert.equal(
      await verdicts(issuer)(issuer.token({}, { expired: true, wrongSignature: true })),
      "ERR_TOKEN_SIGNATURE",
    );
    assert.equal(await verdicts(issuer)(issuer.token({}, { expired: false })), "accepted");
    await assert.rejects(issuer.token({}, { expird: true } as object), { code: "ERR_OPTION_INVALID" });
    await assert.rejects(issuer.token({}, { alg: "RS256" }), { code: "ERR_OPTION_INVALID", message: /"algorithms"/ });
  });
});

const keysOf = async (issuer: TestIssuer): Promise<unknown> =>
  (await issuer.fetch("https://issuer.example/jwks")).json();

describe("an issuer", () => {
  test("rotates: verifiers fetch the new key and reject the second-to-last one", async () => {
    const issuer = await createTestIssuer();
    const verdictOn = verdicts(issuer);
    const first = issuer.token();
    assert.equal(await verdictOn(first), "accepted");
    await issuer.rotate();
    assert.deepEqual([await verdictOn(issuer.token()), await verdictOn(first)], ["accepted", "accepted"]);
    await issuer.rotate();
    assert.deepEqual([await verdictOn(issuer.token()), await verdictOn(first)], ["accepted", "ERR_TOKEN_KID_UNKNOWN"]);
    assert.equal(await verdictOn(issuer.token({}, { removedKey: true })), "ERR_TOKEN_KID_UNKNOWN");
  });

  test("goes offline and back online: 503, then 200", async () => {
    const issuer = await createTestIssuer();
    const token = await issuer.token();
    issuer.goOffline();
    assert.equal(await statusOf(guardOf(issuer), token), 503);
    issuer.goOnline();
    assert.equal(await statusOf(guardOf(issuer), token), 200);
  });

  test("serves only its own URLs, even under a path", async () => {
    const issuer = await createTestIssuer({ issuer: "https://login.example.com/realms/a" });
    assert.equal(await statusOf(guardOf(issuer), await issuer.token()), 200);
    const documents = ["https://login.example.com/realms/a/jwks", new URL("https://login.example.com/realms/a/jwks")];
    for (const url of documents) assert.equal((await issuer.fetch(url)).status, 200);
    for (const url of ["https://login.example.com/realms/ab/jwks", "https://other.example/jwks"])
      await assert.rejects(issuer.fetch(url), { name: "TypeError" });
    const signal = AbortSignal.abort(new Error("stopped"));
    await assert.rejects(issuer.fetch(`${issuer.issuer}/jwks`, { signal }), { message: "stopped" });
  });

  test("with the same seed has the same keys in every process", async () => {
    const algorithms = ["ES256", "RS256", "EdDSA"] as const;
    const issuers = ["a", "a", "b"].map((seed) => createTestIssuer({ seed, algorithms: ["ES256", "EdDSA"] }));
    for (const issuer of issuers) await (await issuer).rotate();
    const [one, same, other] = await Promise.all(issuers.map(async (issuer) => keysOf(await issuer)));
    assert.deepEqual(one, same);
    assert.notDeepEqual(one, other);
    assert.equal((one as { keys: unknown[] }).keys.length, 2 * 2);
    assert.equal((await createSenderConstrainedClient("a")).jkt, (await createSenderConstrainedClient("a")).jkt);
    // Generating an RSA key takes half a second.
    const [first, again] = [1, 2].map(() => createTestIssuer({ seed: "a", algorithms }));
    const issuer = (await first) as TestIssuer;
    assert.deepEqual(await keysOf(issuer), await keysOf((await again) as TestIssuer));
    for (const alg of algorithms) assert.equal(await verdicts(issuer)(issuer.token({}, { alg })), "accepted", alg);
  });

  test("uses the given clock", async () => {
    let now = Date.now();
    const issuer = await createTestIssuer({ clock: { now: () => now } });
    const verdictOn = verdicts(issuer);
    now -= 301_000;
    assert.equal(await verdictOn(issuer.token()), "ERR_TOKEN_EXPIRED");
  });

  test("does not start in production unless allowed", async (t) => {
    const { NODE_ENV = "test" } = process.env;
    t.after(() => (process.env["NODE_ENV"] = NODE_ENV));
    for (const name of ["production", "Production", " production\n", "prod", "PROD", "prod-eu", "production_2"]) {
      process.env["NODE_ENV"] = name;
      await assert.rejects(createTestIssuer(), { code: "ERR_OPTION_INVALID", message: /production/ }, name);
      await createTestIssuer({ allowProduction: true });
    }
    for (const name of ["test", "product-tests", "preprod", ""]) {
      process.env["NODE_ENV"] = name;
      await createTestIssuer();
    }
  });

  test("rejects invalid options", async () => {
    for (const wrong of [{ algorithms: [] }, { algorithms: ["HS256"] }, { issuer: "no URL" }, { port: 1 }])
      await assert.rejects(createTestIssuer(wrong as object), { name: "ConfigError" });
  });
});

const jsonBody = (value: unknown): RequestInit => ({
  headers: { "Content-Type": "application/json; charset=utf-8" },
  body: typeof value === "string" ? value : JSON.stringify(value),
});

const asForm = (body: string): RequestInit => ({
  headers: { "Content-Type": "application/x-www-form-urlencoded" },
  body,
});

describe("an issuer over HTTP", () => {
  test("uses its URL as its name and has a token endpoint", async (t) => {
    const issuer = await createTestIssuer();
    const { url, close } = await issuer.listen();
    t.after(close);
    assert.equal(issuer.issuer, url);
    const bearer = createBearerGuard({ issuer: url, audience: issuer.audience });
    const body = new URLSearchParams({ grant_type: "client_credentials", scope: "orders:read", client_id: "me" });
    const reply = await fetch(`${url}/token`, { method: "POST", body });
    const { access_token: token } = (await reply.json()) as { access_token: string };
    const auth = await bearer.check(new Request(url, { headers: { Authorization: `Bearer ${token}` } }));
    assert.ok(!(auth instanceof Response));
    assert.deepEqual([auth.scopes, auth.clientId], [["orders:read"], "me"]);
    const text = async (path: string): Promise<string> => (await fetch(url + path)).text();
    assert.equal(await statusOf(bearer, await text("/token?fault=expired")), 401);
    assert.equal((await fetch(`${url}/token?fault=none`)).status, 400);
    assert.equal((await fetch(`${url}/nothing`)).status, 404);
    assert.equal((await fetch(`${url}/.well-known/oauth-authorization-server`)).status, 200);
    issuer.goOffline();
    await assert.rejects(fetch(`${url}/jwks`));
  });

  test("keeps a configured name", async (t) => {
    const issuer = await createTestIssuer({ issuer: "https://login.example.com" });
    const { url, close } = await issuer.listen();
    t.after(close);
    assert.equal(issuer.issuer, "https://login.example.com");
    const trusted = { issuer: issuer.issuer, jwksUri: `${url}/jwks` };
    assert.equal(
      await statusOf(createBearerGuard({ issuer: trusted, audience: issuer.audience }), await issuer.token()),
      200,
    );
  });

  test("malformed, aborted and unusual requests do not stop the process or the issuer", async (t) => {
    const issuer = await createTestIssuer();
    const { url, close } = await issuer.listen();
    t.after(close);
    const port = Number(new URL(url).port);
    const statusOf = async (head: string, body = ""): Promise<string> =>
      (await exchange(port, `${head}\r\nHost: localhost\r\nConnection: close\r\n${body || "\r\n"}`))
        .subarray(9, 12)
        .toString();
    const unhandled = unhandledRejections();
    const aborted = connect(port, "127.0.0.1");
    aborted.end("POST /token HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nscope=");
    await once(aborted.resume(), "close");
    const withBody = "Content-Length: 2\r\n\r\nab";
    const large = `Content-Length: 2000000\r\n\r\n${"x".repeat(2_000_000)}`;
    const table: readonly (readonly [status: string, head: string, body?: string])[] = [
      ["400", "POST /token HTTP/1.1", "Transfer-Encoding: chunked\r\n\r\nzz\r\n"],
      ["200", "GET /jwks HTTP/1.1", withBody],
      ["200", "HEAD /jwks HTTP/1.1", withBody],
      ["400", "TRACE /jwks HTTP/1.1"],
      ["200", `GET http://user:pass@localhost:${port}/jwks HTTP/1.1`],
      ["404", "GET //user:pass@evil.example/jwks HTTP/1.1"],
      ["404", "GET // HTTP/1.1"],
      ["400", "OPTIONS * HTTP/1.1"],
      ["404", "GET /hostile/%ff/jwks HTTP/1.1"],
      ["400", "GET /jwks HTTP/1.1", "Host: evil.example\r\n\r\n"],
    ];
    const statuses: string[] = [];
    for (const [, head, body] of table) statuses.push(await statusOf(head, body));
    await statusOf("POST /token HTTP/1.1", large).catch(() => "closed");
    assert.deepEqual(
      statuses,
      table.map(([status]) => status),
    );
    assert.deepEqual(await unhandled(), []);
    assert.equal((await fetch(`${url}/jwks`)).status, 200);
  });

  test("reads a form or JSON at POST /token and rejects anything else with invalid_request", async (t) => {
    const issuer = await createTestIssuer();
    const { url, close } = await issuer.listen();
    t.after(close);
    const form = new FormData();
    form.set("client_secret", "s3cret");
    const secret = { grant_type: "client_credentials", client_secret: "s3cret", code: "s3cret", password: "s3cret" };
    const post = async (init: RequestInit): Promise<unknown> => {
      const reply = await fetch(`${url}/token`, { method: "POST", ...init });
      assert.equal(reply.headers.get("cache-control"), "no-store");
      const answer = (await reply.json()) as Record<string, string>;
      if (reply.status !== 200) {
        assert.match(answer["error_description"] ?? "", /^[ !#-[\]-~]+$/, "RFC 6749 section 5.2");
        assert.doesNotMatch(answer["error_description"] ?? "", /Error|s3cret/);
        return [reply.status, answer["error"]];
      }
      const {
        iss: _iss,
        aud: _aud,
        iat: _iat,
        exp: _exp,
        jti: _jti,
        ...claims
      } = decodeJwt(answer["access_token"] ?? "");
      return claims;
    };
    const refused = [400, "invalid_request"];
    const usual = { sub: "alice", client_id: "app" };
    const table: Record<string, readonly [init: RequestInit, answer: unknown]> = {
      "a form": [
        { body: new URLSearchParams({ ...secret, scope: "a b", level: "3" }) },
        { ...usual, scope: "a b", level: 3 },
      ],
      JSON: [
        jsonBody({ ...secret, sub: "7", roles: ["a"], level: "3" }),
        { ...usual, sub: "7", roles: ["a"], level: 3 },
      ],
      "no body": [{}, usual],
      "malformed JSON": [jsonBody('{"client_secret": "s3cret"'), refused],
      "JSON that is not an object": [jsonBody(["s3cret"]), refused],
      multipart: [{ body: form }, refused],
      "a body without a type": [{ body: new TextEncoder().encode("client_secret=s3cret") }, refused],
      text: [{ body: "client_secret=s3cret" }, refused],
      "a fault that does not exist": [{ body: new URLSearchParams({ fault: 'n\u00f6"\\' }) }, refused],
    };
    const bodies = [
      '{"client_id":"app","client_secret":"s3cret"}',
      "<xml>s3cret</xml>",
      "client_secret%3Ds3cret",
      "client_secret[]=s3cret",
      "client+secret=s3cret",
      "client_id=app;client_secret=s3cret",
      "client_id=app\r\nclient_secret=s3cret",
      'client={"client_secret": "s3cret"}',
    ];
    for (const body of bodies) table[body] = [asForm(body), refused];
    const secrets =
      "Client_Secret clientSecret user.password device_code pre-authorized_code subject_token auth_req_id client_assertion";
    for (const name of secrets.split(" ")) table[name] = [asForm(`${name}=s3cret`), usual];
    const names = ["https://example.com/roles", "_claim_names", "urn:zone", "token_use", "postal_code", "größe"];
    for (const name of names)
      table[name] = [{ body: new URLSearchParams({ [name]: "token:read" }) }, { ...usual, [name]: "token:read" }];
    const answers: Record<string, unknown> = {};
    for (const [name, [init]] of Object.entries(table)) answers[name] = await post(init);
    assert.deepEqual(answers, Object.fromEntries(Object.entries(table).map(([name, [, answer]]) => [name, answer])));
  });

  test("refuses other hosts and shows tokens only to pages from this machine", async (t) => {
    const issuer = await createTestIssuer({ issuer: "https://login.example.com" });
    const { url, close } = await issuer.listen();
    t.after(close);
    const port = Number(new URL(url).port);
    const ask = async (path: string, headers: Readonly<Record<string, string>>, method = "GET") => {
      const sent = plainRequest({ port, path, method, headers }).end();
      const [reply] = (await once(sent, "response")) as [IncomingMessage];
      reply.resume();
      return [reply.statusCode, reply.headers["access-control-allow-origin"]];
    };
    const local = "http://localhost:3000";
    const foreign = "https://evil.example";
    const table: readonly (readonly [host: string, origin: string, token: unknown, keys: unknown])[] = [
      ["evil.example", foreign, [421, undefined], [421, undefined]],
      [`evil.example:${port}`, local, [421, undefined], [421, undefined]],
      [`localhost:${port}`, local, [200, local], [200, "*"]],
      [`127.0.0.1:${port}`, "http://[::1]:5173", [200, "http://[::1]:5173"], [200, "*"]],
      ["login.example.com", foreign, [200, undefined], [200, "*"]],
      ["localhost", "http://localhost.evil.example", [200, undefined], [200, "*"]],
      ["localhost", "null", [200, undefined], [200, "*"]],
    ];
    const rows = [];
    for (const [host, origin] of table)
      rows.push([host, origin, await ask("/token", { host, origin }), await ask("/jwks", { host, origin })]);
    assert.deepEqual(rows, table);
    const preflight = { host: "localhost", origin: local, "access-control-request-method": "POST" };
    assert.deepEqual(await ask("/token", preflight, "OPTIONS"), [204, local]);
  });

  test("jwksd test-issuer serves a page with tokens and buttons", async (t) => {
    const port = await freePort();
    const { child, exited } = spawnCli(t, ["test-issuer", "--port", String(port)]);
    let stdout = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
    await eventually("the test issuer has started", () => stdout.includes("Press Ctrl-C to stop it."));
    const url = `http://127.0.0.1:${port}`;
    const page = await (await fetch(url)).text();
    const links = [...page.matchAll(/href="([^"]+)"/g)].map(([, path = ""]) => path.replaceAll("&amp;", "&"));
    assert.ok(links.length > Object.keys(tokenFaults).length + hostileNames.length);
    for (const path of links) assert.equal((await fetch(url + path)).status, 200, path);
    const press = (path: string) => fetch(url + path, { method: "POST" });
    const kids = async () => ((await (await fetch(`${url}/jwks`)).json()) as { keys: unknown[] }).keys.length;
    const before = await kids();
    assert.equal((await press("/rotate")).status, 200);
    assert.equal(await kids(), 2 * before);
    for (const path of ["/rotate", "/go-offline"]) {
      const headers = { Origin: "https://evil.example" };
      assert.equal((await fetch(url + path, { method: "POST", headers })).status, 403, path);
    }
    assert.equal(await kids(), 2 * before);
    await press("/go-offline");
    await assert.rejects(kids());
    const during = decodeJwt(await (await fetch(`${url}/token?sub=123`)).text());
    assert.equal(during.sub, "123", "tests still get tokens");
    await press("/go-online");
    await kids();
    child.kill("SIGINT");
    await once(child, "close");
    assert.deepEqual(await exited, { code: 0, signal: null });
  });
});

describe("documents with a fault", () => {
  test("the doctor reports exactly that fault", async () => {
    const issuer = await createTestIssuer();
    const misses: unknown[] = [];
    for (const name of hostileNames) {
      const body = new Uint8Array(await (await issuer.fetch(`${issuer.issuer}/hostile/${name}/jwks`)).arrayBuffer());
      const found = await examine(observed({ body, rest: { certificates: {} } }));
      const codes: string[] = found.map(({ code }) => code).filter((code) => !code.startsWith("DISCOVERY_"));
      if (codes.join(" ") !== name) misses.push([name, codes]);
    }
    assert.deepEqual(misses, []);
  });

  test("a 404 for an unknown name lists the available faults", async () => {
    const { issuer, fetch } = await createTestIssuer();
    const text = async (path: string): Promise<unknown> => {
      const reply = await fetch(`${issuer}/hostile/${path}`);
      return [reply.status, await reply.text()];
    };
    const [, last] = hostileNames.slice(-2);
    for (const path of ["JWKS_RSA_ROCA/jwks", "", "nothing"])
      assert.match(String(await text(path)), new RegExp(`^404,.*: JWKS_NOT_JSON, .*, ${last}\\.\n$`), path);
    assert.match(String(await text("JWKS_OCT/keys")), /^404,.*JWKS_OCT\/jwks/);
  });

  test("the guard accepts a valid token whose key is listed alongside a faulty key", async () => {
    const issuer = await createTestIssuer();
    const whole =
      "JWKS_NOT_JSON JWKS_KEYS_MISSING JWKS_KEYS_NOT_LIST JWKS_KEYS_EMPTY JWKS_ONE_KEY_NO_KID JWKS_ONE_OLD_KEY JWKS_NO_SIGNING_KEY".split(
        " ",
      );
    const answers: Record<string, number> = {};
    for (const name of hostileNames) {
      const at = `${issuer.issuer}/hostile/${name}`;
      const bearer = createBearerGuard({ issuer: at, audience: issuer.audience, keySet: { fetch: issuer.fetch } });
      answers[name] = await statusOf(bearer, await (await issuer.fetch(`${at}/token`)).text());
    }
    const refused = Object.keys(answers).filter((name) => answers[name] !== 200);
    assert.deepEqual(refused, [...whole, "JWKS_KID_DUPLICATE"], JSON.stringify(answers));
  });
});

describe("a test client", () => {
  test("creates valid and invalid DPoP proofs", async () => {
    const issuer = await createTestIssuer();
    const client = await createSenderConstrainedClient();
    const bearer = guardOf(issuer, { dpop: "required", baseUrl: "https://api.example.com" });
    const token = await issuer.token({ cnf: { jkt: client.jkt } });
    const url = "https://api.example.com/orders";
    const status = async (claims?: Record<string, unknown>): Promise<number> =>
      statusOf(bearer, token, {
        Authorization: `DPoP ${token}`,
        DPoP: await client.proof({ token, url, ...(claims && { claims }) }),
      });
    assert.deepEqual([await status(), await status({ htm: "PUT" }), await status({ ath: undefined })], [200, 401, 401]);
  });

  test("connects with its certificate, and the guard accepts the token bound to that certificate", async (t: TestContext) => {
    const [issuer, client] = [await createTestIssuer(), await createSenderConstrainedClient("mtls")];
    const certificate = new X509Certificate(client.certificate);
    assert.ok(certificate.verify(certificate.publicKey));
    const bearer = guardOf(issuer, { certificate: peerOf });
    const pair = { key: client.privateKey, cert: client.certificate };
    const server = createServer({ ...pair, requestCert: true, rejectUnauthorized: false }, (request, response) =>
      bearer.express()(request, response, () => response.end()),
    );
    const port = await listening(t, server);
    const status = async (x5t: string): Promise<number | undefined> => {
      const token = await issuer.token({ cnf: { "x5t#S256": x5t } });
      const sent = send({ port, ...pair, ca: pair.cert, checkServerIdentity: () => undefined, agent: false });
      sent.setHeader("Authorization", `Bearer ${token}`).end();
      const [reply] = (await once(sent, "response")) as [{ statusCode?: number; resume(): void }];
      reply.resume();
      return reply.statusCode;
    };
    assert.deepEqual([await status(client.x5t), await status((await createSenderConstrainedClient()).x5t)], [200, 401]);
  });
});
