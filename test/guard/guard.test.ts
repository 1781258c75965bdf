import assert from "node:assert/strict";
import { rename, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { audience } from "../bearer/guards.ts";
import { startProviders } from "../bearer/provider.ts";
import { accessToken, boundToken, dpopProof, otherKeys } from "../bearer/requests.ts";
import { withoutPrivate, ecKey } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { skipWithout } from "../support/parts.ts";
import { startRedis } from "../support/redis.ts";
import { type Scope, eventually, freePort, spawnCli, temporaryFolder } from "../support/service.ts";
import { type HeaderLine, exchange, requestText } from "../support/wire.ts";
import { type GuardHere, described, refusalIn, startGuardHere } from "./running.ts";

type Providers = Awaited<ReturnType<typeof startProviders>>;

const origin: HeaderLine = ["Origin", "https://app.example"];
const wants = (method: string): HeaderLine => ["Access-Control-Request-Method", method];
const bearer = (token: string): HeaderLine => ["Authorization", `Bearer ${token}`];

/** Starts providers and a guard for one host. @param host members of the host besides its issuers */
async function startOne(t: Scope, host: object = {}, settings: object = {}, issuer: object = {}) {
  const setup = await startProviders(t);
  const issuers = [{ issuer: setup.issuer, audience, ...issuer }];
  const hosts = { "api.example.com": { issuers, routes: [{ path: "/*" }], ...host } };
  return { setup, hosts, guard: await startGuardHere(t, { hosts, ...settings }) };
}

/** Returns the status that the client gets, and the detail of a refusal. */
async function result(guard: GuardHere, request: Parameters<GuardHere["ask"]>[0]): Promise<string> {
  const reply = await guard.ask(request);
  if (reply.status === 200) return "200";
  const { status, body } = refusalIn(reply);
  return `${status} ${(JSON.parse(body) as { detail: string }).detail}`;
}

/** Returns the warnings in a guard's log. */
const warnings = ({ log }: GuardHere): string[] =>
  log.filter(({ level }) => level === "warn").map(({ message }) => message);

/** Returns the identity headers that a token gets. */
async function identity(guard: GuardHere, setup: Providers, claims: object): Promise<Record<string, string> | string> {
  const { status, headers, body } = await guard.ask({ target: "/", headers: [bearer(accessToken(setup, { claims }))] });
  if (status !== 200) return (JSON.parse(body) as { detail: string }).detail;
  const own = Object.entries(headers).filter(([name]) => name.startsWith("x-jwksd-"));
  return Object.fromEntries(own.map(([name, value]) => [name.slice("x-jwksd-".length), value]));
}

describe("identity headers", () => {
  test("carry the sender's claims in visible ASCII", async (t) => {
    const { setup, guard } = await startOne(t, { claims: ["email", "tenant_id", "https://example.com/roles"] });
    const base = { issuer: setup.issuer, subject: "alice", client: "app" };
    const rows: readonly (readonly [claims: object, headers: object])[] = [
      [{}, base],
      [{ scope: "a b" }, { ...base, scope: "a%20b" }],
      [{ scp: ["a", "b"] }, { ...base, scope: "a%20b" }],
      [{ sub: "ä%\n\u0000€😀~!" }, { ...base, subject: "%C3%A4%25%0A%00%E2%82%AC%F0%9F%98%80~!" }],
      [
        { sub: undefined, client_id: undefined, azp: "other" },
        { issuer: setup.issuer, client: "other" },
      ],
      [
        { email: "a+b@example.com", tenant_id: 7 },
        { ...base, "claim-email": "a+b@example.com", "claim-tenant-id": "7" },
      ],
      [
        { email: null, tenant_id: false },
        { ...base, "claim-tenant-id": "false" },
      ],
      [{ "https://example.com/roles": ["a", "ü"] }, { ...base, "claim-https-example-com-roles": '["a","%C3%BC"]' }],
      [{ email: "x".repeat(2_048) }, { ...base, "claim-email": "x".repeat(2_048) }],
    ];
    for (const [claims, headers] of rows) assert.deepEqual(await identity(guard, setup, claims), headers);
  });

  test("are not made up for a claim that is named after a property of Object.prototype", async (t) => {
    const names = ["constructor", "toString", "__proto__"];
    const { setup, guard } = await startOne(t, { claims: names }, {}, { scopeClaims: ["constructor", "scope"] });
    const base = { issuer: setup.issuer, subject: "alice", client: "app", scope: "a" };
    assert.deepEqual(await identity(guard, setup, { scope: "a" }), base);
    const own = { ["__proto__"]: "p", constructor: "b", toString: "s" };
    assert.deepEqual(await identity(guard, setup, own), {
      ...base,
      scope: "b",
      "claim-constructor": "b",
      "claim-tostring": "s",
      "claim-proto": "p",
    });
  });

  test("are refused rather than truncated if a value is too long or not valid Unicode", async (t) => {
    const { setup, guard } = await startOne(t, { claims: ["a", "b", "c", "d"] });
    const long = "x".repeat(2_048);
    const rows: readonly (readonly [claims: object, detail: string])[] = [
      [{ sub: "x".repeat(2_049) }, "The token's X-Jwksd-Subject is too long to be passed on."],
      [{ sub: "€".repeat(228) }, "The token's X-Jwksd-Subject is too long to be passed on."],
      [{ a: long, b: long, c: long, d: long }, "The token's X-Jwksd-Claim-D is too long to be passed on."],
      [{ a: "\ud800" }, "A claim in the token is not valid Unicode."],
    ];
    for (const [claims, detail] of rows) assert.equal(await identity(guard, setup, claims), detail);
  });

  test("are all sent to Caddy, even those with an empty value, whereas other proxies get none for a request without a token", async (t) => {
    const host = {
      claims: ["email"],
      routes: [
        { path: "/public", public: true },
        { path: "/*", optional: true },
      ],
    };
    const { hosts } = await startOne(t, host);
    const names = ["x-jwksd-issuer", "x-jwksd-subject", "x-jwksd-client", "x-jwksd-scope", "x-jwksd-claim-email"];
    for (const [proxy, prefix] of [
      ["caddy", "X-Forwarded"],
      ["traefik", "X-Forwarded"],
      ["nginx", "X-Original"],
    ] as const) {
      const guard = await startGuardHere(t, { for: proxy, hosts });
      for (const path of ["/public", "/x"]) {
        const reply = await guard.send(
          [`${prefix}-Method`, "GET"],
          [`${prefix}-Host`, "api.example.com"],
          [`${prefix}-Uri`, path],
          ["X-Original-Request-ID", "1"],
        );
        assert.equal(reply.status, 200);
        const own = Object.entries(reply.headers).filter(([name]) => name.startsWith("x-jwksd-"));
        assert.deepEqual(own, proxy === "caddy" ? names.map((name) => [name, ""]) : [], proxy);
      }
    }
  });
});

describe("a check", () => {
  test("is refused if a header, however it is spelled, could be taken for one of the guard's", async (t) => {
    const { setup, guard } = await startOne(t, { routes: [{ path: "/public", public: true }, { path: "/*" }] });
    const token = bearer(accessToken(setup));
    const separators = "!#$%&'*+-.^_`|~".split("");
    const names = separators.flatMap((one) => separators.map((other) => `X${one}Jwksd${other}Subject`));
    const others = ["X-Original-URL", "x_rewrite_url", "SCRIPT_NAME", "X-Script-Name"];
    for (const name of [...names, "x-jwksd-", "X-JWKSD-CLAIM-EMAIL", ...others]) {
      const { status } = refusalIn(await guard.ask({ target: "/public", headers: [[name, "alice"], token] }));
      assert.equal(status, 400, name);
    }
    const many = Array.from({ length: 3_000 }, (_, i): HeaderLine => [`a${i}`, ""]);
    const forged: HeaderLine = ["X_Jwksd_Subject", "admin"];
    assert.match(await result(guard, { target: "/", headers: [token, ...many, forged] }), /^400 Only the guard/);
    for (const name of ["X-Jwks", "X-Jwksdx-A", "Jwksd-Subject", "X-HTTP-Method-Override"])
      assert.equal(await result(guard, { target: "/", headers: [[name, "PUT"], token] }), "200", name);
  });

  test("is refused if a header overrides the method and a route depends on the method, even for a preflight", async (t) => {
    for (const route of [{ methods: ["GET"] }, { cors: "pass" }]) {
      const { setup, guard } = await startOne(t, { routes: [{ path: "/*", ...route }] });
      const token = bearer(accessToken(setup));
      for (const name of ["X-HTTP-Method-Override", "x_http_method_override", "X-HTTP-Method", "X-Method-Override"])
        assert.match(
          await result(guard, { target: "/", headers: [[name, "DELETE"], token] }),
          /^400 Headers that override/,
        );
      assert.equal(await result(guard, { target: "/", headers: [token] }), "200");
    }
  });

  test("is refused if the Destination header names another route's path", async (t) => {
    const { guard } = await startOne(t, {
      routes: [
        { path: "/public/*", public: true },
        { path: "/admin/*", scope: "admin" },
      ],
    });
    const status = async (...values: readonly string[]): Promise<string> => {
      const headers = values.map((value): HeaderLine => ["Destination", value]);
      return (await result(guard, { method: "COPY", target: "/public/a?b=/c", headers })).slice(0, 3);
    };
    for (const value of ["/public/b", "https://api.example.com/public/b", "b", "b?rev=1", "$&"])
      assert.equal(await status(value), "200", value);
    for (const value of ["/admin/b", "https://api.example.com/admin/b", "HTTP://x/ADMIN/b", "//x/admin", "../admin/b"])
      assert.equal(await status(value), "400", value);
    for (const value of [
      "/other",
      "/public/%2e%2e/admin",
      "/public/..;/admin",
      "https://api.example.com",
      "x:/admin/b",
    ])
      assert.equal(await status(value), "400", value);
    assert.equal(await status("/public/b", "/admin/b"), "400");
  });

  test("must be described precisely and only once, by the proxy's own headers", async (t) => {
    const { setup, guard } = await startOne(t, {}, { certificateHeader: "Client-Cert" });
    const token = bearer(accessToken(setup));
    const whole = [...described("GET", "api.example.com", "/", "1"), ["Client-Cert", "::"] as const];
    const status = async (...lines: readonly HeaderLine[]): Promise<number> => {
      const reply = await guard.send(...lines, token);
      return reply.status === 200 ? 200 : refusalIn(reply).status;
    };
    assert.equal(await status(...whole), 200);
    for (const [index, line] of whole.entries()) {
      const [name, value] = line;
      assert.equal(await status(...whole.toSpliced(index, 1)), 400, `no ${name}`);
      assert.equal(await status(...whole, line), 400, `two ${name}`);
      assert.equal(
        await status(...whole.toSpliced(index, 1, [name.replaceAll("-", "_"), value])),
        400,
        `${name} with _`,
      );
      const forwarded = name.replace("X-Original", "X-Forwarded");
      if (forwarded !== name)
        assert.equal(await status(...whole.toSpliced(index, 1, [forwarded, value])), 400, forwarded);
    }
    const changed: readonly (readonly [index: number, values: readonly string[], expected: number])[] = [
      [0, ["get", "Get", "", "FOO", "CONNECT", "GET,POST", "GET "], 400],
      [
        1,
        ["API.EXAMPLE.COM", "api.example.com:443", "api.example.com:", "api.example.com.", "Api.example.com.:1"],
        200,
      ],
      [1, ["a.example", "127.0.0.1", "[::1]:443"], 403],
      [
        1,
        [
          "",
          ".",
          "api.example.com..",
          "api%2Eexample.com",
          "api.example.com, a.example",
          "api.example.com/",
          "[::1",
          "[0:0:0:0:0:0:0:1]",
          "[::ffff:127.0.0.1]",
          "127.1",
        ],
        400,
      ],
      [2, ["/a?x=/../", "/?a=%2e&b=\\;#"], 200],
      [2, ["", "?", "*", "https://api.example.com/", "api.example.com:443", "/%2e", "/a//b"], 400],
      [4, ["", ":", "x", "-----BEGIN CERTIFICATE-----"], 400],
    ];
    for (const [index, values, expected] of changed)
      for (const value of values) {
        const [name = ""] = whole[index] ?? [];
        // Node removes a space at the end.
        const isSame = value.trim() === "GET";
        assert.equal(
          await status(...whole.toSpliced(index, 1, [name, value])),
          isSame ? 200 : expected,
          `${name}: ${value}`,
        );
      }
  });

  test("may have Upgrade and Expect headers, a body and any method", async (t) => {
    const { setup, guard } = await startOne(t);
    const head = [...described("GET", "api.example.com", "/"), bearer(accessToken(setup))];
    const rows: readonly (readonly [method: string, target: string, ...lines: HeaderLine[]])[] = [
      ["GET", "/check", ["Expect", "anything"]],
      ["GET", "/check?a=b", ["Expect", "100-continue"]],
      ["GET", "/check", ["Connection", "Upgrade"], ["Upgrade", "websocket"]],
      ["POST", "/check", ["Content-Length", "2"], ["Expect", "x"]],
      ["HEAD", "/check"],
    ];
    for (const [method, target, ...lines] of rows) {
      const text = requestText({ method, target, headers: [...head, ...lines] }, ["Connection", "close"]);
      const received = await exchange(guard.port, method === "POST" ? `${text}{}` : text);
      assert.match(received.toString().replace(/^HTTP\/1.1 100 Continue\r\n\r\n/, ""), /^HTTP\/1.1 200 /, lines.join());
    }
    for (const target of ["/", "/check/", "/checks", "/metrics", "//check"]) {
      const received = await exchange(guard.port, requestText({ target, headers: head }, ["Connection", "close"]));
      assert.match(received.toString(), /^HTTP\/1.1 404 /, target);
    }
  });

  test("may have a head of more than 64 kB, but is refused if its head is too large", async (t) => {
    const { setup, guard } = await startOne(t);
    const token = bearer(accessToken(setup));
    const status = async (bytes: number): Promise<number> =>
      (await guard.ask({ target: "/", headers: [token, ["Cookie", "x".repeat(bytes)]] })).status;
    assert.deepEqual(await Promise.all([65_536, 120_000].map(status)), [200, 200]);
    assert.equal(await status(140_000).catch(() => 431), 431);
  });

  test("of a preflight passes if the host or route allows it", async (t) => {
    const routes = [
      { path: "/open", methods: ["PUT"], scope: "a" },
      { path: "/open/*", methods: ["GET"] },
      { path: "/*", methods: ["OPTIONS"], scope: "b" },
    ];
    const { guard, setup } = await startOne(t, { cors: "pass", routes });
    const closed = await startGuardHere(t, {
      hosts: {
        "*": {
          issuers: [{ issuer: setup.issuer, audience }],
          routes: [{ path: "/open", cors: "pass" }, { path: "/*" }],
        },
      },
    });
    const rows: readonly (readonly [
      guard: GuardHere,
      method: string,
      target: string,
      lines: HeaderLine[],
      status: string,
    ])[] = [
      [guard, "OPTIONS", "/open", [origin, wants("PUT")], "200"],
      [guard, "OPTIONS", "/open", [origin, wants("DELETE")], "401"],
      [guard, "OPTIONS", "/open", [origin, wants("PUT"), wants("PUT")], "401"],
      [guard, "OPTIONS", "/open", [origin, origin, wants("PUT")], "401"],
      [guard, "OPTIONS", "/open", [wants("PUT")], "401"],
      [guard, "OPTIONS", "/open", [origin], "401"],
      [guard, "OPTIONS", "/open/../x", [origin, wants("PUT")], "400"],
      [guard, "GET", "/open/x", [origin, wants("GET")], "401"],
      [guard, "OPTIONS", "/open/x", [origin, wants("GET"), ["X-Jwksd-Issuer", "a"]], "400"],
      [closed, "OPTIONS", "/open", [origin, wants("PUT")], "200"],
      [closed, "OPTIONS", "/x", [origin, wants("PUT")], "401"],
    ];
    for (const [asked, method, target, headers, expected] of rows)
      assert.equal(
        (await result(asked, { method, target, headers })).slice(0, 3),
        expected,
        `${method} ${target} ${headers.join()}`,
      );
  });
});

describe("a second check", () => {
  test("may use the same proof for ten seconds if the request is the same, and is refused if the request is different", async (t) => {
    const setup = await startProviders(t);
    let aheadMs = 0;
    const clock = { ...systemClock, now: () => Date.now(), monotonic: () => performance.now() + aheadMs };
    const issuers = [{ issuer: setup.issuer, audience, dpop: "optional", baseUrl: audience }];
    const guard = await startGuardHere(t, { hosts: { "*": { issuers, routes: [{ path: "/*" }] } } }, clock);
    const token = boundToken(setup);
    const request = (path = "/a", sent = token) => ({
      target: path,
      headers: [
        ["Authorization", `DPoP ${sent}`],
        ["DPoP", dpopProof(sent, path)],
      ] as HeaderLine[],
    });
    const one = request();
    const used = "401 the proof has already been used (jti)";
    assert.equal(await result(guard, { ...one, id: "1" }), "200");
    assert.equal(await result(guard, { ...one, id: "1" }), "200");
    assert.equal(await result(guard, { ...one, id: "2" }), used);
    assert.equal(await result(guard, { ...one, id: "1", target: "/a?b" }), used);
    assert.equal(await result(guard, { ...one, id: "1", host: "b.example" }), used);
    assert.match(await result(guard, { ...one, id: "1", method: "HEAD" }), /^401 the proof's htm/);
    assert.equal(await result(guard, { ...one, id: "" }), used);
    aheadMs += 9_000;
    assert.equal(await result(guard, { ...one, id: "1" }), "200");
    aheadMs += 1_001;
    assert.equal(await result(guard, { ...one, id: "1" }), used);

    // The id alone proves nothing.
    const other = request("/b", boundToken(setup, { claims: { sub: "bob" } }));
    assert.equal(await result(guard, { ...other, id: "1" }), "200");
    const stolen = [one.headers[0], other.headers[1]] as HeaderLine[];
    assert.match(await result(guard, { ...other, headers: stolen, id: "1" }), /^401 the proof's ath/);

    // Without an id, for example from Caddy, each check is another request.
    const caddy = await startGuardHere(t, { for: "caddy", hosts: { "*": { issuers, routes: [{ path: "/*" }] } } });
    const asked = request("/c").headers;
    const ask = async () => {
      const forwarded = [
        ["X-Forwarded-Method", "GET"],
        ["X-Forwarded-Host", "a"],
        ["X-Forwarded-Uri", "/c"],
      ] as const;
      return (await caddy.send(...forwarded, ["X-Original-Request-ID", "1"], ["X-Request-Id", "1"], ...asked)).status;
    };
    assert.deepEqual([await ask(), await ask()], [200, 401]);
  });
});

test(
  "guards that share a Redis server accept a proof once, and no proof while the server is down",
  { skip: skipWithout("redis-server") },
  async (t) => {
    const setup = await startProviders(t);
    const redis = await startRedis(t);
    const issuers = [{ issuer: setup.issuer, audience, dpop: "optional", baseUrl: audience }];
    const config = {
      replayStore: `redis://:s3cret@127.0.0.1:${redis.port}`,
      hosts: { "*": { issuers, routes: [{ path: "/*" }] } },
    };
    const [one, other] = [await startGuardHere(t, config), await startGuardHere(t, config)];
    const token = boundToken(setup);
    const request = () => ({
      target: "/a",
      headers: [
        ["Authorization", `DPoP ${token}`],
        ["DPoP", dpopProof(token, "/a")],
      ] as HeaderLine[],
    });
    // A busy machine might not connect within the time that a request waits.
    for (const guard of [one, other])
      await eventually("it is connected", async () => (await result(guard, request())) === "200");
    const first = request();
    assert.equal(await result(one, first), "200");
    assert.equal(await result(one, first), "200", "nginx's second check");
    assert.equal(await result(other, first), "401 the proof has already been used (jti)");
    assert.equal(await result(other, request()), "200");
    await redis.kill();
    assert.match(await result(one, request()), /^503 /);
    assert.equal(await result(one, { target: "/a", headers: [bearer(accessToken(setup))] }), "200");
    await redis.start();
    await eventually("it loads its data", async () => (await result(one, request())) === "200");
    assert.equal(await result(other, first), "401 the proof has already been used (jti)", "after the restart");
    assert.match(
      warnings(one).join("\n"),
      /DPoP proofs do not need a nonce[^]*request refused: cannot use the store redis:\/\/127\.0\.0\.1:\d+ /,
    );
    assert.doesNotMatch(JSON.stringify(one.log), /s3cret/);
  },
);

describe("an issuer", () => {
  test("that is unreachable never causes a request to be let through, at startup or later", async (t) => {
    const port = await freePort();
    const issuer = `http://127.0.0.1:${port}`;
    const guard = await startGuardHere(t, {
      hosts: { "*": { issuers: [{ issuer, audience }], routes: [{ path: "/*" }] } },
    });
    const headers = [bearer(accessToken({ issuer }))];
    assert.match(await result(guard, { target: "/", headers }), /^503 /);
    assert.match(
      await guard.page("/readyz"),
      /^503 not ready: the keys of http:\/\/127\.0\.0\.1:\d+ have not been fetched yet/,
    );
    assert.match(await guard.page("/livez"), /^200 /);
    assert.match(await guard.page("/metrics"), /jwksd_ready 0\n/);

    let isUp = true;
    const jwk = withoutPrivate({ ...ecKey("bearer ec-1"), kid: "ec-1", alg: "ES256" });
    const documents: Readonly<Record<string, object>> = {
      "/.well-known/openid-configuration": { issuer, jwks_uri: `${issuer}/jwks` },
      "/jwks": { keys: [jwk] },
    };
    const server = createServer(({ url = "" }, response) => {
      response.writeHead(isUp ? 200 : 500).end(JSON.stringify(documents[url]));
    });
    await listening(t, server, "127.0.0.1", port);
    await eventually("the keys are fetched without a request", async () =>
      (await guard.page("/readyz")).startsWith("200"),
    );
    assert.equal(await result(guard, { target: "/", headers }), "200");
    isUp = false;
    assert.equal(await result(guard, { target: "/", headers }), "200");
    assert.match(
      await result(guard, { target: "/", headers: [bearer(accessToken({ issuer }, { kid: "ec-9" }))] }),
      /^(401|503) /,
    );
  });

  test("gets few requests during a flood of forged kids, while valid tokens still pass", async (t) => {
    const { setup, guard } = await startOne(t);
    await eventually("ready", async () => (await guard.page("/readyz")).startsWith("200"));
    const before = setup.requests.length;
    const flood = Array.from({ length: 200 }, async (_, index) => {
      const header = { kid: `forged ${index}` };
      return result(guard, { target: "/", headers: [bearer(accessToken(setup, { header }))] });
    });
    const valid = result(guard, { target: "/", headers: [bearer(accessToken(setup))] });
    assert.equal(await valid, "200");
    for (const text of await Promise.all(flood)) assert.match(text, /^(401|503) /);
    assert.ok(setup.requests.length - before <= 20, `${setup.requests.length - before} requests`);
    // The flood does not fill the log.
    assert.ok(guard.log.length < 60, `${guard.log.length} lines`);
  });

  test("is chosen by the token's iss, and the token is then verified with that issuer's keys", async (t) => {
    const setup = await startProviders(t);
    const issuers = [
      { issuer: setup.issuer, audience },
      { issuer: setup.other, audience: "orders", typ: "JWT", scopeClaims: ["roles"] },
    ];
    const guard = await startGuardHere(t, { hosts: { "*": { issuers, routes: [{ path: "/*", scope: "read" }] } } });
    const own = { key: otherKeys["ec-1"].jwk, header: { typ: "JWT" } };
    const rows: readonly (readonly [token: string, expected: RegExp])[] = [
      [accessToken(setup, { claims: { scope: "read" } }), /^200/],
      [accessToken({ issuer: setup.other }, { ...own, claims: { aud: "orders", roles: ["read"] } }), /^200/],
      [accessToken({ issuer: setup.other }, { ...own, claims: { aud: "orders", scope: "read" } }), /^403/],
      [accessToken({ issuer: setup.other }, { ...own, claims: { roles: ["read"] } }), /^401 claim 'aud'/],
      [accessToken(setup, { claims: { aud: "orders", roles: ["read"] } }), /^401 claim 'aud'/],
      [accessToken(setup, { header: { typ: "JWT" }, claims: { scope: "read" } }), /^401 the token's typ/],
      [
        accessToken({ issuer: setup.other }, { header: { typ: "JWT" }, claims: { aud: "orders" } }),
        /^401 the signature/,
      ],
      [accessToken({ issuer: "https://evil.example" }), /^401 the token's issuer/],
      ["a.b.c", /^401 the token is not/],
      ["", /^400|^401/],
    ];
    for (const [token, expected] of rows)
      assert.match(await result(guard, { target: "/", headers: [bearer(token)] }), expected, token);
    // With a search that takes quadratic time, each of these would take seconds.
    const startedAt = performance.now();
    const long: HeaderLine[] = [bearer("x".repeat(120_000)), ["Authorization", ""]];
    for (let i = 0; i < 10; i += 1) assert.match(await result(guard, { target: "/", headers: long }), /^400/);
    assert.ok(performance.now() - startedAt < 10_000);
  });
});

const publicHost = (name: string): object => ({ [name]: { routes: [{ path: "/*", public: true }] } });

describe("the configuration", () => {
  test("is reloaded completely or not at all when the file changes, without losing the keys", async (t) => {
    const { setup, hosts, guard } = await startOne(t);
    const headers = [bearer(accessToken(setup))];
    const status = async (host: string) => (await result(guard, { target: "/", host, headers })).slice(0, 3);
    assert.equal(await status("api.example.com"), "200");
    const fetched = setup.requests.length;
    const base = { for: "nginx", listen: "127.0.0.1:0", admin: "127.0.0.1:0" };
    const write = (config: object | string): Promise<void> =>
      writeFile(guard.file, typeof config === "string" ? config : JSON.stringify(config));

    const added = { ...base, hosts: { ...hosts, "b.example": hosts["api.example.com"] } };
    await write(added);
    await eventually("the new host", async () => (await status("b.example")) === "200");
    assert.equal(setup.requests.length, fetched);
    assert.match(await guard.page("/metrics"), /jwksd_guard_config_refused 0\n/);

    const text = JSON.stringify(added);
    const refused = [
      text.slice(0, text.length / 2),
      "",
      { ...base, hosts: { "c.example": { issuers: [], routes: [{ path: "/*" }] } } },
      {
        ...base,
        hosts: { ...hosts, "c.example": { ...hosts["api.example.com"], routes: [{ path: "/*", scop: "a" }] } },
      },
      { ...base, for: "caddy", hosts },
      { ...added, certificateHeader: "Client-Cert" },
    ];
    for (const config of refused) {
      await write(config);
      assert.equal(await guard.reload(), false);
      assert.deepEqual([await status("api.example.com"), await status("b.example")], ["200", "200"]);
      assert.match(await guard.page("/metrics"), /jwksd_guard_config_refused 1\n/);
      assert.match(
        guard.log.at(-1)?.message ?? "",
        /^the old configuration remains in use, because the new one was rejected: /,
      );
    }
    assert.match(guard.log.at(-1)?.message ?? "", /to change other settings, restart it/);

    await write({ ...base, hosts });
    assert.equal(await guard.reload(), true);
    assert.deepEqual([await status("api.example.com"), await status("b.example")], ["200", "403"]);
    assert.equal(setup.requests.length, fetched);
  });

  test("is reloaded again if its file is replaced while it is being read, at startup or on a reload", async (t) => {
    const base = { for: "nginx", listen: "127.0.0.1:0", admin: "127.0.0.1:0" };
    const later = ["b.example", "c.example"];
    const guard = await startGuardHere(t, { hosts: publicHost("a.example") }, undefined, async (file) => {
      const [next] = later.splice(0, 1);
      if (next === undefined) return;
      await writeFile(`${file}.new`, JSON.stringify({ ...base, hosts: publicHost(next) }));
      await rename(`${file}.new`, file);
    });
    await eventually("the last host", async () => (await result(guard, { target: "/", host: "c.example" })) === "200");
    assert.match(await result(guard, { target: "/", host: "b.example" }), /^403 /);
  });

  test("is reloaded completely or not at all when the process receives a SIGHUP", async (t) => {
    const [file, port] = [join(await temporaryFolder(t), "guard.json"), await freePort()];
    const write = (...paths: readonly string[]): Promise<void> => {
      const routes = paths.map((path) => ({ path, public: true }));
      return writeFile(file, JSON.stringify({ for: "nginx", hosts: { "*": { routes } } }));
    };
    await write("/a");
    const flags = ["--config", file, "--listen", `127.0.0.1:${port}`, "--admin", "off", "--json-logs"];
    const { child, exited } = spawnCli(t, ["guard", ...flags]);
    const log: string[] = [];
    createInterface({ input: child.stdout }).on("line", (line) => log.push((JSON.parse(line) as { msg: string }).msg));
    const passes = async (path: string): Promise<boolean> => {
      const headers = Object.fromEntries(described("GET", "a.example", path));
      return (await fetch(`http://127.0.0.1:${port}/check`, { headers })).ok;
    };
    /** Sends a SIGHUP and waits for the result in the log. */
    const hangUp = async (expected: string): Promise<void> => {
      const from = log.length;
      child.kill("SIGHUP");
      await eventually(expected, () => log.slice(from).some((line) => line.startsWith(expected)));
    };
    await eventually("it listens", () => log.includes("started"));
    // The file is unchanged, so only the signal can cause this.
    await hangUp("configuration reloaded");
    assert.deepEqual([await passes("/a"), await passes("/b")], [true, false]);
    await write("/b");
    await hangUp("configuration reloaded");
    assert.deepEqual([await passes("/a"), await passes("/b")], [false, true]);
    await write("/c", "/b//");
    await hangUp('the old configuration remains in use, because the new one was rejected: host "*": route 2');
    assert.deepEqual([await passes("/b"), await passes("/c")], [true, false]);
    child.kill("SIGTERM");
    assert.deepEqual(await exited, { code: 0, signal: null });
  });

  test("that adds DPoP causes the same warning as at startup", async (t) => {
    const { setup, hosts, guard } = await startOne(t);
    assert.deepEqual(warnings(guard), []);
    const issuers = [{ issuer: setup.issuer, audience, dpop: "required" }];
    const added = { ...hosts, "b.example": { ...hosts["api.example.com"], issuers } };
    const other = await startGuardHere(t, { hosts: added });
    const base = { for: "nginx", listen: "127.0.0.1:0", admin: "127.0.0.1:0" };
    await writeFile(guard.file, JSON.stringify({ ...base, hosts: added }));
    assert.equal(await guard.reload(), true);
    assert.match(warnings(guard).join("\n"), /^if several guards run, .*\nDPoP proofs do not need a nonce/);
    assert.deepEqual(warnings(guard), warnings(other));
  });

  test("has one key set, with a metric for its age, for each issuer or URL", async (t) => {
    const setup = await startProviders(t);
    const one = { issuer: setup.issuer, audience };
    const jwksUri = `${setup.other}/jwks`;
    const at = (issuer: string) => ({ issuer, jwksUri, audience });
    const routes = [{ path: "/*" }];
    const hosts = {
      "a.example": { issuers: [one, at("https://one.example")], routes },
      "b.example": { issuers: [{ ...one, typ: "JWT" }, at("https://two.example")], routes },
    };
    const guard = await startGuardHere(t, { hosts });
    await eventually("ready", async () => (await guard.page("/readyz")).startsWith("200"));
    const names = (await guard.page("/metrics")).matchAll(
      /^jwksd_remote_set_requested_timestamp_seconds\{set="(.*)"\}/gm,
    );
    assert.deepEqual(
      Array.from(names, ([, name]) => name),
      [setup.issuer, jwksUri],
    );
    assert.equal(setup.requests.filter((path) => path.endsWith("/jwks")).length, 2);
  });

  test("that names a new issuer makes the guard unready until that issuer's keys are fetched", async (t) => {
    const { setup, hosts, guard } = await startOne(t);
    await eventually("ready", async () => (await guard.page("/readyz")).startsWith("200"));
    const more = { issuers: [{ issuer: setup.down, audience }], routes: [{ path: "/*" }] };
    const base = { for: "nginx", listen: "127.0.0.1:0", admin: "127.0.0.1:0" };
    await writeFile(guard.file, JSON.stringify({ ...base, hosts: { ...hosts, "b.example": more } }));
    assert.equal(await guard.reload(), true);
    assert.match(await guard.page("/readyz"), /^503 not ready: the keys of /);
    assert.equal(await result(guard, { target: "/", headers: [bearer(accessToken(setup))] }), "200");
    await writeFile(guard.file, JSON.stringify({ ...base, hosts }));
    assert.equal(await guard.reload(), true);
    assert.match(await guard.page("/readyz"), /^200 /);
  });

  test("from flags has a single issuer for all hosts and paths", async (t) => {
    const setup = await startProviders(t);
    const port = await freePort();
    const flags = ["--for", "caddy", "--issuer", setup.issuer, "--audience", audience, "--scope", "read"];
    const { child, exited } = spawnCli(t, ["guard", ...flags, "--listen", `127.0.0.1:${port}`, "--admin", "off"]);
    let errors = "";
    child.stderr.on("data", (chunk: Buffer) => (errors += chunk.toString()));
    const ask = (scope: string) =>
      fetch(`http://127.0.0.1:${port}/check`, {
        headers: {
          "X-Forwarded-Method": "GET",
          "X-Forwarded-Host": "any.example",
          "X-Forwarded-Uri": "/a",
          Authorization: `Bearer ${accessToken(setup, { claims: { scope } })}`,
        },
      });
    await eventually("it listens", () =>
      ask("read").then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
    const refused = await ask("write");
    assert.deepEqual(
      [refused.status, refused.headers.get("cache-control"), refused.headers.get("content-type")],
      [403, "no-store", "application/problem+json"],
    );
    child.kill("SIGTERM");
    assert.deepEqual(await exited, { code: 0, signal: null }, errors);
  });
});

describe("a guard", () => {
  test("on a Unix socket admits only its own user or a given group", async (t) => {
    const setup = await startProviders(t);
    const folder = await temporaryFolder(t);
    const hosts = { "*": { issuers: [{ issuer: setup.issuer, audience }], routes: [{ path: "/*" }] } };
    for (const [name, settings, mode] of [
      ["own.sock", {}, 0o600],
      ["group.sock", { socketGroup: `${process.getgid?.()}` }, 0o660],
    ] as const) {
      const listen = join(folder, name);
      const guard = await startGuardHere(t, { listen, ...settings, hosts });
      assert.equal((await stat(listen)).mode & 0o777, mode);
      await guard.stop();
    }
  });

  test("never includes a token, subject or query in its log or metrics", async (t) => {
    const { setup, guard } = await startOne(t, { routes: [{ path: "/a", scope: "x" }] });
    const token = accessToken(setup, { claims: { sub: "s3cret-subject" } });
    for (const target of ["/a?s3cret-query", "/b?s3cret-query", "/a/../s?s3cret-query"])
      await guard.ask({ target, headers: [bearer(token)] });
    await guard.ask({ target: "/a", headers: [bearer("s3cret-token")] });
    const text = JSON.stringify(guard.log) + (await guard.page("/metrics"));
    assert.doesNotMatch(text, new RegExp(`s3cret|${token.split(".")[2]}`));
    assert.match(text, /jwksd_guard_decisions_total\{status="403",reason="insufficient_scope"\} 1\n/);
    assert.match(text, /jwksd_guard_decisions_total\{status="400",reason="path"\} 1\n/);
    const refused = guard.log.find(({ message }) => message.startsWith("request refused: the token needs the scope x"));
    assert.deepEqual(refused?.fields, {
      host: "api.example.com",
      method: "GET",
      path: "/a",
      status: 403,
      error: "insufficient_scope",
      code: undefined,
      id: "1",
    });
  });

  test("logs how many refusals it did not log individually, both after ten seconds and when it stops", async (t) => {
    const timers = new Set<() => void>();
    const setTimer: Clock["setTimer"] = (callback, delayMs) => {
      if (delayMs !== 10_000) return systemClock.setTimer(callback, delayMs);
      timers.add(callback);
      return () => void timers.delete(callback);
    };
    const guard = await startGuardHere(t, { hosts: publicHost("a.example") }, { ...systemClock, setTimer });
    const refuse = (count: number) =>
      Promise.all(Array.from({ length: count }, () => guard.ask({ target: "/", host: "b.example" })));
    const refusals = () =>
      guard.log.filter(({ message }) => /refus/.test(message)).map(({ message, fields }) => [message, fields] as const);
    const missing = "too many refusals: some lines were not logged";
    await refuse(60);
    assert.equal(refusals().length, 50);
    for (const timer of timers) timer();
    assert.deepEqual(refusals().slice(50), [[missing, { lines: 10 }]]);
    await refuse(53);
    await guard.stop();
    assert.deepEqual(refusals().slice(101), [[missing, { lines: 3 }]]);
    assert.equal(guard.log.at(-1)?.message, "stopped");
    assert.equal(timers.size, 0);
  });

  test("finishes the checks in flight when it stops", async (t) => {
    let respond: (() => void) | undefined;
    const server = createServer((_, response) => void (respond = () => response.writeHead(500).end()));
    const issuer = `http://127.0.0.1:${await listening(t, server)}`;
    const guard = await startGuardHere(t, {
      hosts: { "*": { issuers: [{ issuer, audience }], routes: [{ path: "/*" }] } },
    });
    const pending = result(guard, { target: "/", headers: [bearer(accessToken({ issuer }))] });
    await eventually("the keys are requested", () => respond !== undefined);
    const stopped = guard.stop("SIGTERM");
    await eventually("it stops", () => guard.log.some(({ message }) => message === "stopping"));
    respond?.();
    assert.match(await pending, /^503 /);
    await stopped;
  });
});
