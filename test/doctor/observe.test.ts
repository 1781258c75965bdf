import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage, OutgoingHttpHeaders, RequestListener, ServerResponse } from "node:http";
import { createServer } from "node:http";
import { type TestContext, describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { examine } from "../../src/doctor/index.ts";
import { type ObserveOptions, observeIssuer, observationsFromBody } from "../../src/doctor/node/index.ts";
import { requester } from "../../src/doctor/node/request.ts";
import { createProvider, localSigner } from "../../src/index.ts";
import { certificateFor, certificateUntil } from "../client/certificate.ts";
import { ecKey, rsaKey } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { bytes, published, tagOf } from "./observed.ts";
import { providing, serveHttp, serveRaw, serveTls } from "./server.ts";

const local: ObserveOptions = { allowInsecure: true };
const codesAt = async (url: string, options: ObserveOptions = local): Promise<string[]> =>
  (await examine(await observeIssuer(url, options))).map(({ code }) => code);

const codesIn = async (body: unknown): Promise<string[]> =>
  (await examine(observationsFromBody(bytes(body), 0))).map(({ code }) => code);

const goodBody = Buffer.from(bytes({ keys: [published("a")] }));
const fields = {
  "content-type": "application/jwk-set+json",
  "cache-control": "public, max-age=3600",
  etag: tagOf(goodBody),
  "access-control-allow-origin": "*",
};

/** Responds as a sound provider does, except for these headers. */
const good =
  (body: Buffer = goodBody, more: Readonly<Record<string, string>> = {}): RequestListener =>
  (request, response) => {
    const isSame = request.headers["if-none-match"] === fields.etag;
    response.writeHead(isSame ? 304 : 200, isSame ? fields : { ...fields, "content-length": body.length, ...more });
    response.end(isSame || request.method === "HEAD" ? undefined : body);
  };

describe("observeIssuer", () => {
  test("finds no problems in a provider built with this library, using at most 30 GET and HEAD requests", async (t) => {
    const requests: IncomingMessage[] = [];
    const server = createServer((request, response) => {
      requests.push(request);
      provider.node(request, response);
    });
    const url = `http://127.0.0.1:${await listening(t, server)}`;
    const entries = [{ kid: "a", signer: await localSigner(ecKey("a")) }];
    const provider = await createProvider({ issuer: url, keyset: entries });
    assert.deepEqual(await codesAt(url), []);
    assert.ok(requests.length <= 30, `${requests.length}`);
    assert.deepEqual(new Set(requests.map(({ method }) => method)), new Set(["GET", "HEAD"]));
    const asked = (name: string): unknown[] => requests.map(({ headers }) => headers[name]);
    assert.ok(asked("accept").includes("application/json"));
    assert.equal(asked("user-agent").filter((agent) => agent === undefined).length, 1);
    assert.equal(asked("if-none-match").filter((tag) => tag !== undefined).length, 3);
    assert.ok(asked("origin").some((origin) => origin !== undefined));
  });

  for (const path of ["", "/tenant"]) {
    test(`also tries the RFC 8414 paths if the issuer at "${path}" supports logins`, async (t) => {
      // Path that a proxy does not forward.
      let closed = "none";
      const url = await serveHttp(t, (request, response) =>
        request.url?.startsWith(closed) ? response.writeHead(404).end() : provider.node(request, response),
      );
      const issuer = `${url}${path}`;
      const keyset = [{ kid: "a", signer: await localSigner(ecKey("a")) }];
      const login = {
        authorization_endpoint: `${url}/authorize`,
        token_endpoint: `${url}/token`,
        response_types_supported: ["code"],
        subject_types_supported: ["public"],
      };
      let provider = await createProvider({ issuer, keyset, metadata: login });
      assert.deepEqual(await codesAt(issuer), ["DISCOVERY_RS256_MISSING"]);
      closed = "/.well-known/oauth-authorization-server";
      assert.deepEqual(await codesAt(issuer), ["DISCOVERY_PATHS", "DISCOVERY_RS256_MISSING"]);
      closed = path === "" ? closed : "/.well-known/openid-configuration";
      assert.deepEqual(await codesAt(issuer), ["DISCOVERY_PATHS", "DISCOVERY_RS256_MISSING"]);
      provider = await createProvider({ issuer, keyset });
      assert.deepEqual(await codesAt(issuer), [], "no client requests these paths from an issuer without logins");
    });
  }

  test("accepts the URL of an issuer (with or without a trailing slash), a discovery document or a JWK Set", async (t) => {
    const url = await serveHttp(
      t,
      providing((request, response) => good()(request, response)),
    );
    for (const path of ["", "/", "/.well-known/openid-configuration", "/jwks"]) {
      assert.deepEqual(await codesAt(`${url}${path}`), path === "/" ? ["DISCOVERY_ISSUER_SLASH"] : []);
      const { set, discovery } = await observeIssuer(`${url}${path}`, local);
      assert.deepEqual([set?.status, discovery === undefined], [200, path === "/jwks"]);
    }
  });

  test("checks a JWK Set as a set, even if there is a discovery document below its URL", async (t) => {
    const url = await serveHttp(t, (request, response) => {
      const origin = `http://${request.headers.host}`;
      if (request.url?.endsWith("openid-configuration") === true)
        response.end(JSON.stringify({ issuer: "https://other.example.com", jwks_uri: `${origin}/other` }));
      else good()(request, response);
    });
    assert.deepEqual(await codesAt(`${url}/tenant/jwks`), []);
  });

  const unknown: readonly (readonly [path: string, status: number, type: string, code: string])[] = [
    ["/realm", 404, "application/json", "DISCOVERY_STATUS"],
    ["/realm", 200, "text/html", "DISCOVERY_STATUS"],
    ["/realm", 200, "text/plain", "JWKS_NOT_JSON"],
    ["/realm/jwks", 200, "text/html", "JWKS_NOT_JSON"],
    ["/discovery/v2.0/keys", 500, "text/html", "HTTP_STATUS"],
    ["/oauth2/v3/certs", 404, "text/html", "HTTP_STATUS"],
  ];
  for (const [path, status, type, code] of unknown) {
    test(`reports ${code} for ${path} with status ${status} and ${type}`, async (t) => {
      const url = await serveHttp(t, ({ url }, response) =>
        response.writeHead(url === path ? status : 404, { "content-type": type }).end("nothing of use"),
      );
      assert.ok((await codesAt(`${url}${path}`)).includes(code));
    });
  }

  test("reports an issuer without a discovery document, and a missing set", async (t) => {
    const url = await serveHttp(t, (_, response) => response.writeHead(404).end());
    assert.deepEqual(await codesAt(url), ["DISCOVERY_STATUS"]);
    assert.deepEqual(await codesAt(`${url}/jwks`), ["HTTP_STATUS"]);
  });
});

test("observationsFromBody recognizes a set and a discovery document", async () => {
  assert.deepEqual(await codesIn({ keys: [published("a")] }), []);
  assert.deepEqual(await codesIn({ keys: [] }), ["JWKS_KEYS_EMPTY"]);
  assert.deepEqual(await codesIn(published("a")), ["JWKS_KEYS_MISSING"]);
  assert.deepEqual(await codesIn({ issuer: "https://a.example", jwks_uri: "http://a.example/jwks" }), [
    "DISCOVERY_JWKS_URI_HTTP",
  ]);
  assert.deepEqual(await codesIn({ issuer: "http://127.0.0.1:9", jwks_uri: "file:///etc/jwks.json" }), [
    "DISCOVERY_JWKS_URI_HTTP",
  ]);
});

describe("by default, observeIssuer connects only to https URLs at public addresses", () => {
  for (const url of ["http://login.example.com", "https://127.0.0.1:1", "https://[::1]:1", "https://169.254.169.254"]) {
    test(`refuses ${url}`, async () => {
      await assert.rejects(observeIssuer(url), ({ code }: { code: string }) =>
        ["ERR_URL_INSECURE", "ERR_ADDRESS_FORBIDDEN"].includes(code),
      );
    });
  }

  const ipv4 = "169.254.169.254 168.63.129.16 192.0.0.192 100.100.100.200";
  const ipv6 =
    "[::ffff:100.100.100.200] [fd00:ec2::254] [fd00:ec2::23] [fd20:ce::254] [fd00:c1::a9fe:a9fe] [fd00:42::42]";
  for (const host of `${ipv4} ${ipv6} [fe80::a9fe:a9fe] [64:ff9b::a9fe:a9fe]`.split(" ")) {
    test(`refuses the cloud metadata address ${host}, even with allowInsecure`, async () => {
      await assert.rejects(observeIssuer(`http://${host}`, { ...local, timeoutMs: 1000 }), {
        code: "ERR_ADDRESS_FORBIDDEN",
      });
    });
  }

  test("refuses other addresses in a jwks_uri and in a redirect", async (t) => {
    const metadata = { issuer: "https://login.example.com", jwks_uri: "https://keys.example.com/jwks" };
    const { cert, key } = certificateFor("login.example.com", "keys.example.com");
    let location = "https://keys.example.com/jwks";
    const port = new URL(
      await serveTls(t, { cert, key }, (request, response) => {
        const isMetadata = request.url?.startsWith("/.well-known") === true;
        if (isMetadata) response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(metadata));
        else response.writeHead(302, { location }).end();
      }),
    ).port;
    const asked: string[] = [];
    const resolve = async (host: string) => {
      asked.push(host);
      return [{ address: host === "login.example.com" ? "127.0.0.1" : "169.254.169.254", family: 4 }];
    };
    const options = { ...local, ca: cert, resolve };
    const jwksUri = `https://login.example.com:${port}/.well-known/openid-configuration`;
    const observations = await observeIssuer(jwksUri, options);
    assert.equal(observations.set?.failure?.kind, "forbidden-address");
    assert.deepEqual(
      (await examine({ ...observations, issuer: metadata.issuer })).map(({ code }) => code),
      ["DISCOVERY_JWKS_URI_PRIVATE"],
    );
    metadata.jwks_uri = `https://login.example.com:${port}/jwks`;
    const redirected = await observeIssuer(jwksUri, options);
    assert.deepEqual([redirected.set?.failure?.kind, redirected.set?.redirects?.length], ["forbidden-address", 1]);
    location = "file:///etc/passwd";
    assert.equal((await observeIssuer(jwksUri, options)).set?.failure?.kind, "forbidden-url");
    assert.ok(asked.includes("keys.example.com"));
  });

  test("rejects if it cannot connect", async (t) => {
    const server = createServer();
    const port = await listening(t, server);
    server.close();
    await once(server, "close");
    await assert.rejects(observeIssuer(`http://127.0.0.1:${port}`, local), {
      code: "ERR_FETCH_FAILED",
      message: /ECONNREFUSED/,
    });
  });
});

const endless = (_: IncomingMessage, response: ServerResponse): void => {
  response.writeHead(200, fields);
  const more = (): void => {
    while (response.write(Buffer.alloc(16_384, " ")));
  };
  response.on("drain", more);
  more();
};

const bomb = gzipSync(Buffer.alloc(10_000_000));

const coded = (encoding: string, body: Buffer): RequestListener => {
  const head = { ...fields, "content-encoding": encoding };
  return (_, response) => response.writeHead(200, head).end(body);
};

const early: RequestListener = (_, response) => {
  response.writeHead(200, { ...fields, "content-length": 1000 });
  response.write('{"keys":[', () => response.destroy());
};

const loop: RequestListener = (_, response) => response.writeHead(302, { location: "/jwks" }).end();

describe("observeIssuer stays within its limits and reports any limit it reaches", () => {
  const quick: ObserveOptions = { ...local, timeoutMs: 300 };
  const rows: readonly (readonly [about: string, jwks: RequestListener, code: string])[] = [
    ["that never responds", () => {}, "HTTP_TIMEOUT"],
    ["that never ends its body", (_, response) => response.writeHead(200, fields).write("{"), "HTTP_TIMEOUT"],
    ["that sends forever", endless, "HTTP_TOO_LARGE"],
    ["whose body decompresses to a huge one", coded("gzip", bomb), "HTTP_TOO_LARGE"],
    ["whose compressed body is damaged", coded("br", Buffer.from("nothing of the kind")), "HTTP_INCOMPLETE"],
    ["whose body ends early", early, "HTTP_INCOMPLETE"],
    ["that redirects to itself", loop, "HTTP_REDIRECT"],
  ];
  for (const [about, jwks, code] of rows) {
    test(`for a server ${about}`, async (t) => {
      const url = await serveHttp(t, providing(jwks));
      const found = await examine(await observeIssuer(url, quick));
      assert.deepEqual(
        found.map((finding) => finding.code),
        [code],
      );
      assert.match(found[0]?.seen[0] ?? "", /0\.3 s|1,000,000 bytes|damaged|after 9 bytes|more than 5/);
    });
  }

  const switching = "HTTP/1.1 101 Switching Protocols\r\n";
  const raw: readonly (readonly [about: string, text: string])[] = [
    ["that does not speak HTTP", "220 smtp.example.com ESMTP\r\n"],
    ["that sends headers forever", `HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(20_000)}`],
    ["that returns 101 without an upgrade", `${switching}\r\n`],
    ["that returns 101 with an upgrade", `${switching}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`],
    ["that sends informational responses forever", "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000)],
  ];
  for (const [about, text] of raw) {
    test(`for a server ${about}`, async (t) => {
      const url = await serveRaw(t, (socket) => void socket.once("data", () => socket.write(text)));
      assert.deepEqual(await codesAt(`${url}/jwks`, quick), ["HTTP_STATUS"]);
    });
  }

  test("for a server with 5,000 keys: examines a thousand of them and says so", async (t) => {
    const one = published("one");
    const many = Buffer.from(
      bytes({ keys: Array.from({ length: 5000 }, (_, index) => ({ ...one, kid: `k${index}` })) }),
    );
    const url = await serveHttp(t, providing(good(many)));
    const found = await examine(await observeIssuer(url, local));
    assert.deepEqual(found.find(({ code }) => code === "JWKS_KEYS_MANY")?.seen, [
      "5,000 keys, of which 1,000 were examined",
    ]);
    assert.equal(found.find(({ code }) => code === "JWKS_KEY_TWO_KIDS")?.count, 999);
  });

  test("for a server with deeply nested JSON", async (t) => {
    const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
    const url = await serveHttp(t, providing(good(Buffer.from(`{"keys":[${deep},{"kty":${deep},"kid":${deep}}]}`))));
    assert.deepEqual(await codesAt(url), [
      "JWKS_MEMBER_NOT_OBJECT",
      "JWKS_KID_TYPE",
      "JWKS_NO_SIGNING_KEY",
      "JWKS_KTY_MISSING",
      "HTTP_TOO_LARGE",
    ]);
    assert.deepEqual(await examine(observationsFromBody(Buffer.from(deep), 0)).then((found) => found.length), 1);
  });

  test("starts no requests after the overall time limit", async (t) => {
    let requests = 0;
    const url = await serveHttp(t, () => void (requests += 1));
    const { failure } = await requester({ timeoutMs: 300, totalMs: 0, allowInsecure: true })(url);
    assert.deepEqual(
      [requests, failure],
      [0, { kind: "limit", detail: "the time limit for all requests was reached" }],
    );
  });

  test("sends at most 30 requests, including redirects, and reports nothing about what it did not request", async (t) => {
    let requests = 0;
    const moving: RequestListener = (request, response) => {
      requests += 1;
      if (requests < 2) good()(request, response);
      else response.writeHead(302, { location: `/jwks?${requests}` }).end();
    };
    const url = await serveHttp(t, moving);
    const found = await examine(await observeIssuer(`${url}/jwks`, local));
    assert.equal(requests, 30);
    assert.deepEqual(
      found.map(({ code }) => code),
      [],
    );
  });

  test("ends when its caller aborts it", async (t) => {
    const url = await serveHttp(
      t,
      providing(() => {}),
    );
    const controller = new AbortController();
    const looking = observeIssuer(url, { ...local, signal: controller.signal });
    setImmediate(() => controller.abort(new Error("gone")));
    await assert.rejects(looking, /gone/);
  });
});

const bothFamilies = async () => [
  { address: "127.0.0.1", family: 4 },
  { address: "::1", family: 6 },
];

describe("TLS and addresses", () => {
  test("finds a certificate that is not accepted and a certificate that expires soon", async (t) => {
    const soon = new Date(Date.now() + 5 * 24 * 3600 * 1000)
      .toISOString()
      .replaceAll(/[-:T]|\.\d+/g, "")
      .slice(2);
    const ending = certificateUntil(soon, "localhost");
    const url = await serveTls(t, ending, providing(good()));
    assert.deepEqual(await codesAt(url), ["TLS_INVALID"]);
    assert.deepEqual(await codesAt(url, { ...local, ca: ending.cert }), ["TLS_EXPIRES"]);
    const lasting = certificateFor("localhost");
    assert.deepEqual(await codesAt(await serveTls(t, lasting, providing(good())), { ...local, ca: lasting.cert }), []);
    const otherName = certificateFor("other.example.com");
    assert.deepEqual(await codesAt(await serveTls(t, otherName, providing(good())), { ...local, ca: otherName.cert }), [
      "TLS_INVALID",
    ]);
  });

  test("IPv4 and IPv6 are compared if a name has both kinds of address", async (t) => {
    const other = Buffer.from(bytes({ keys: [published("elsewhere")] }));
    const port = await listening(t, createServer(providing(good())));
    await listening(t, createServer(good(other, { etag: '"6"' })), "::1", port);
    assert.deepEqual(await codesAt(`http://op.localhost:${port}`, { ...local, resolve: bothFamilies }), [
      "HTTP_ADDRESSES_DIFFER",
    ]);
    assert.deepEqual(
      await codesAt(`http://op.localhost:${port}`, {
        ...local,
        resolve: async () => (await bothFamilies()).slice(0, 1),
      }),
      [],
    );
  });
});

describe("observeIssuer finds with one of its probes", () => {
  const rsa = published("rsa", rsaKey(), "RS256");
  const zipped = gzipSync(goodBody);
  const moved = { location: "/keys" };
  /** Responds like this to some requests, and as a sound provider does to all others. */
  const only =
    (some: (request: IncomingMessage) => boolean, ...head: [status: number, fields?: OutgoingHttpHeaders]) =>
    (request: IncomingMessage, response: ServerResponse): unknown =>
      some(request) ? response.writeHead(...head).end() : good()(request, response);
  const { etag: _etag, ...untagged } = fields;
  const always = { ...untagged, "content-encoding": "gzip", "content-length": zipped.length, vary: "accept-encoding" };
  const dated = { ...always, "last-modified": new Date(0).toUTCString() };
  const rows: readonly (readonly [code: string, jwks: RequestListener])[] = [
    ["HTTP_USER_AGENT", only(({ headers }) => headers["user-agent"]?.startsWith("Mozilla/") !== true, 403)],
    ["HTTP_NOT_ACCEPTABLE", only(({ headers }) => headers.accept === "application/json", 406)],
    ["HTTP_HEAD", only(({ method }) => method === "HEAD", 405)],
    ["HTTP_304_FOREIGN", only(({ headers }) => headers["if-none-match"] !== undefined, 304, fields)],
    [
      "HTTP_COMPRESSED_NO_VARY",
      (request, response) =>
        request.headers["accept-encoding"] === "gzip"
          ? good(zipped, { "content-encoding": "gzip" })(request, response)
          : good()(request, response),
    ],
    ["HTTP_GZIP_UNASKED", (_, response) => response.writeHead(200, dated).end(zipped)],
    ["HTTP_RATE_LIMIT", only(({ method }) => method === "HEAD", 429, { "retry-after": "9" })],
    ["HTTP_REDIRECT", only(({ url }) => url === "/jwks", 301, moved)],
    ["JWKS_PRIVATE_MEMBERS", good(Buffer.from(bytes({ keys: [{ ...rsa, ...rsaKey() }] })))],
  ];
  for (const [code, jwks] of rows) {
    test(code, async (t: TestContext) => {
      const url = await serveHttp(t, (request, response) =>
        request.url === "/keys" ? jwks(request, response) : providing(jwks)(request, response),
      );
      assert.deepEqual(await codesAt(url), [code]);
    });
  }
});
