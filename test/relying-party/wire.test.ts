import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingHttpHeaders, type RequestListener, type ServerResponse, createServer } from "node:http";
import { type TestContext, describe, test } from "node:test";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { createBearerGuard } from "../../src/verify/bearer/index.ts";
import {
  type FetchError,
  type RemoteKeySetOptions,
  createRemoteKeySet,
  type KeySetState,
} from "../../src/verify/relying-party/index.ts";
import { type VerifyOptions, verify } from "../../src/verify/token/verify.ts";
import { ecKey, named, rsaKey } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { freePort } from "../support/service.ts";
import {
  entry,
  simulatedClock,
  type Script,
  reply,
  routed,
  served,
  unreachable,
  entryOf,
  servedSet,
} from "../support/simulated.ts";
import { compact, signature } from "../token/compact.ts";
import { histories } from "./history.ts";
import { failure, outcome, type VerifierOptions, verifierOf, type Verifier, jwksUri, warmVerifier } from "./setup.ts";

interface Origin {
  readonly url: string;
  readonly requests: { readonly url: string | undefined; readonly headers: IncomingHttpHeaders }[];
}

/** Starts a server on 127.0.0.1 that records its requests. */
async function startOrigin(t: TestContext, listener: RequestListener): Promise<Origin> {
  const requests: Origin["requests"] = [];
  const server = createServer((request, response) => {
    requests.push({ url: request.url, headers: request.headers });
    listener(request, response);
  });
  return { url: `http://127.0.0.1:${await listening(t, server)}`, requests };
}

const set = JSON.stringify({ keys: [entry("a")] });
const header = { kid: "a", alg: "ES256" };

const ask = (url: string, options: RemoteKeySetOptions = {}): Promise<string> => {
  const keys = createRemoteKeySet({ jwksUri: `${url}/jwks`, ...options });
  return outcome(async () => (await keys(header)) && "a");
};

test("discovery, revalidation and a bypass send the expected requests", async (t) => {
  const origin = await startOrigin(t, ({ url, headers }, response) => {
    const etag = `"1"`;
    if (url !== "/jwks") response.end(JSON.stringify({ issuer: origin.url, jwks_uri: `${origin.url}/jwks` }));
    else if (headers["if-none-match"] === etag) response.writeHead(304, { ETag: etag }).end();
    else response.writeHead(200, { ETag: etag }).end(set);
  });
  const keys = createRemoteKeySet({ issuer: origin.url });
  const key = await keys(header);
  assert.equal(await outcome(() => keys({ kid: "b", alg: "ES256" })), "ERR_TOKEN_KID_UNKNOWN");
  assert.equal(await keys(header), key);
  assert.deepEqual(
    origin.requests.map(({ url, headers }) => [
      url,
      headers["if-none-match"],
      headers["cache-control"],
      headers["pragma"],
    ]),
    [
      ["/.well-known/openid-configuration", undefined, undefined, undefined],
      ["/jwks", undefined, undefined, undefined],
      ["/jwks", undefined, "no-cache", undefined],
    ],
  );
  for (const { headers } of origin.requests) {
    assert.equal(headers.accept, "application/jwk-set+json, application/json");
    assert.equal(headers.cookie, undefined);
  }
});

describe("content codings", () => {
  for (const [coding, body] of [
    ["gzip", gzipSync(set)],
    ["deflate", deflateSync(set)],
    ["br", brotliCompressSync(set)],
  ] as const) {
    test(`${coding} is decoded`, async (t) => {
      const { url } = await startOrigin(t, (_, response) => response.setHeader("Content-Encoding", coding).end(body));
      assert.equal(await ask(url), "a");
    });
  }

  test("the size limit applies to the decoded body", async (t) => {
    for (const [bytes, answer] of [
      [262_144, "a"],
      [262_145, "ERR_FETCH_TOO_LARGE"],
    ] as const) {
      const body = gzipSync(set.padEnd(bytes));
      assert.ok(body.length < 1_000);
      const { url } = await startOrigin(t, (_, response) => response.setHeader("Content-Encoding", "gzip").end(body));
      assert.equal(await ask(url), answer);
    }
  });
});

/** Sends pieces until the client closes the connection. Returns the number of bytes. */
async function withoutEnd(response: ServerResponse, piece: Uint8Array): Promise<number> {
  let bytes = 0;
  const send = (): void => {
    for (let isDrained = true; isDrained && !response.destroyed; bytes += piece.length)
      isDrained = response.write(piece);
  };
  response.on("drain", send);
  send();
  await once(response, "close");
  return bytes;
}

describe("an endless body is cut off and its connection closed", () => {
  const mebibyte = Buffer.alloc(1_048_576, " ");
  // A kilobyte per mebibyte, which can be repeated in one body (RFC 1952 section 2.2).
  const bomb = gzipSync(mebibyte);
  const rows: [name: string, piece: Uint8Array, headers: Readonly<Record<string, string>>][] = [
    ["uncompressed", mebibyte, {}],
    ["a zip bomb", bomb, { "Content-Encoding": "gzip" }],
    [
      "a zip bomb of zip bombs",
      gzipSync(Buffer.alloc(bomb.length * 1_000, bomb)),
      { "Content-Encoding": "gzip, gzip" },
    ],
  ];
  for (const [name, piece, headers] of rows) {
    test(name, async (t) => {
      const sent = Promise.withResolvers<number>();
      const { url } = await startOrigin(t, (_, response) => {
        response.writeHead(200, headers);
        sent.resolve(withoutEnd(response, piece));
      });
      const rssBefore = process.memoryUsage.rss();
      assert.equal(await ask(url), "ERR_FETCH_TOO_LARGE");
      assert.ok((await sent.promise) < 16 * mebibyte.length);
      assert.ok(process.memoryUsage.rss() - rssBefore < 128 * mebibyte.length);
    });
  }
});

describe("redirect SSRF: only the origin receives requests", () => {
  for (const status of [301, 302, 303, 307, 308]) {
    test(String(status), async (t) => {
      const inner = await startOrigin(t, (_, response) => response.end(set));
      const origin = await startOrigin(t, (_, response) =>
        response.writeHead(status, { Location: `${inner.url}/jwks` }).end(set),
      );
      assert.equal(await ask(origin.url), "ERR_FETCH_REDIRECT");
      assert.equal(await outcome(() => createRemoteKeySet({ issuer: origin.url })(header)), "ERR_FETCH_REDIRECT");
      assert.equal(origin.requests.length, 2);
      assert.equal(inner.requests.length, 0);
    });
  }
});

describe("a failing connection", () => {
  test("that is refused causes a retryable error", async () => {
    const keys = createRemoteKeySet({ jwksUri: `http://127.0.0.1:${await freePort()}/jwks` });
    const error = await failure<FetchError>(() => keys(header));
    assert.deepEqual([error.code, error.retryable], ["ERR_FETCH_FAILED", true]);
    assert.match(error.message, /ECONNREFUSED/);
  });

  test("is replaced once by a new connection if the server has just closed it because it was idle", async (t) => {
    const used = new WeakSet<object>();
    let isDown = false;
    const { url, requests } = await startOrigin(t, ({ socket }, response) => {
      if (isDown || used.has(socket)) socket.destroy();
      else response.writeHead(200, { "Cache-Control": "no-cache" }).end(set);
      used.add(socket);
    });
    const clock = simulatedClock();
    const keys = createRemoteKeySet({ jwksUri: `${url}/jwks`, clock });
    for (const count of [1, 3]) {
      assert.equal(await outcome(async () => (await keys(header)) && "a"), "a");
      assert.equal(requests.length, count);
      await clock.advance(5_000);
    }
    isDown = true;
    assert.equal(await outcome(() => keys(header)), "ERR_FETCH_FAILED");
    assert.equal(requests.length, 5);
  });

  const broken: [name: string, listener: RequestListener][] = [
    ["that is closed before the response causes ERR_FETCH_FAILED", (request) => request.socket.destroy()],
    [
      "that is closed in the middle of the body causes ERR_FETCH_FAILED",
      (_, response) => {
        response.writeHead(200, { "Content-Length": set.length });
        response.write(set.slice(0, 10), () => response.destroy());
      },
    ],
    [
      "with a broken content coding causes ERR_FETCH_FAILED",
      (_, response) => response.setHeader("Content-Encoding", "gzip").end(set),
    ],
  ];
  for (const [name, listener] of broken) {
    test(name, async (t) => {
      const { url } = await startOrigin(t, listener);
      assert.equal(await ask(url), "ERR_FETCH_FAILED");
    });
  }
});

describe("a client stops waiting for a slow server", () => {
  const listeners: [name: string, listener: (response: ServerResponse) => void][] = [
    ["after the timeout, if the response does not begin", () => {}],
    ["after the timeout, if the body does not begin", (response) => response.flushHeaders()],
    ["after the timeout, if the body does not end", (response) => response.write(set.slice(0, 10))],
  ];
  for (const [name, listener] of listeners) {
    test(name, async (t) => {
      const clock = simulatedClock();
      const reached = Promise.withResolvers<ServerResponse>();
      const { url } = await startOrigin(t, (_, response) => {
        listener(response);
        reached.resolve(response);
      });
      const call = ask(url, { clock, timeoutMs: 2_000 });
      const response = await reached.promise;
      await clock.advance(2_000);
      assert.equal(await call, "ERR_FETCH_TIMEOUT");
      if (!response.closed) await once(response, "close");
      assert.equal(clock.timers, 0);
    });
  }

  test("when its key set is closed", async (t) => {
    const reached = Promise.withResolvers<ServerResponse>();
    const { url } = await startOrigin(t, (_, response) => reached.resolve(response));
    const keys = createRemoteKeySet({ jwksUri: `${url}/jwks` });
    const call = outcome(() => keys(header));
    const response = await reached.promise;
    keys.close();
    assert.equal(await call, "ERR_CLOSED");
    if (!response.closed) await once(response, "close");
  });
});

const wellKnown = "/.well-known/openid-configuration";
const issuer = "https://op.example/tenant";
const configuration = `${issuer}${wellKnown}`;
const jwks = "https://keys.example/jwks";
const [wrong, secure] = ["ERR_DISCOVERY_ISSUER", "ERR_URL_INSECURE"];

const document = (metadata: unknown, headers?: Readonly<Record<string, string>>): Script =>
  reply(200, JSON.stringify(metadata), headers);

const op = "https://op.example";
const insecure = { allowInsecure: true };
/** `metadata` replaces members of a document with the issuer and `jwks`, or is the whole document. */
const rows: readonly [
  source: string,
  name: string,
  metadata: unknown,
  expect: string,
  options?: VerifierOptions & { readonly url?: string },
][] = [
  ["section 4.3", "with the right issuer", {}, "a"],
  ["section 4.1", "with an issuer without a path", { issuer: op }, "a", { issuer: op, url: `${op}${wellKnown}` }],
  [
    "section 4.1",
    "with decommissioning an issuer with a slash",
    { issuer: `${issuer}/` },
    "a",
    { issuer: `${issuer}/` },
  ],
  ["section 4.3", "with the issuer and a slash", { issuer: `${issuer}/` }, wrong],
  ["section 4.3", "with the issuer without its slash", {}, wrong, { issuer: `${issuer}/` }],
  ["section 4.3", "with a different issuer", { issuer: "https://other.example" }, wrong],
  ["section 4.3", "with the issuer in uppercase", { issuer: issuer.replace("op", "OP") }, wrong],
  ["section 4.3", "with the issuer and its port", { issuer: issuer.replace("example", "example:443") }, wrong],
  ["section 4.3", "with a list of issuers", { issuer: [issuer] }, wrong],
  ["section 4.3", "without an issuer", { issuer: undefined }, wrong],
  ["section 4.3", "null", null, wrong],
  ["section 4.3", "a number", 7, wrong],
  ["section 3", "without jwks_uri", { jwks_uri: undefined }, secure],
  ["section 3", "with a jwks_uri that is not a string", { jwks_uri: [jwks] }, secure],
  ["section 3", "with a relative jwks_uri", { jwks_uri: "/jwks" }, secure],
  ["section 3", "with an http jwks_uri", { jwks_uri: "http://keys.example/jwks" }, secure],
  ["section 3", "with an http jwks_uri on loopback and an https issuer", { jwks_uri: "http://127.0.0.1/jwks" }, secure],
  ["option", "with an http jwks_uri that is allowed", { jwks_uri: "http://keys.example/jwks" }, "a", insecure],
  ["section 3", "with a data URL as jwks_uri", { jwks_uri: "data:application/json,{}" }, secure, insecure],
  ["design", "with a password in jwks_uri", { jwks_uri: "https://user:pass@keys.example/jwks" }, secure],
];

describe("the discovery document (OpenID Connect Discovery)", () => {
  for (const [source, name, metadata, expect, { url = configuration, ...options } = {}] of rows) {
    test(`${source}: ${name}: ${expect === "a" ? "accepted" : expect}`, async () => {
      const uris = [jwks, "http://keys.example/jwks"].map((uri) => [uri, served(["a"])] as const);
      const isObject = typeof metadata === "object" && metadata !== null;
      const script = document(isObject ? { issuer, jwks_uri: jwks, ...metadata } : metadata);
      const routes = { [url]: script, ...Object.fromEntries(uris) };
      const { ask, origin } = verifierOf(routed(routes), { issuer, ...options });
      assert.equal(await ask("a"), expect);
      assert.equal(origin.requests.length, expect === "a" ? 2 : 1);
      assert.ok(origin.requests.every(({ init }) => init.redirect === "manual"));
    });
  }

  for (const [name, input, expect, requests = 1] of [
    ["not JSON", reply(200, "<html>"), "ERR_FETCH_BODY"],
    ["a redirect", reply(302, null, { Location: jwks }), "ERR_FETCH_REDIRECT"],
    // The metadata of RFC 8414 is missing, too.
    ["not found", reply(404), "ERR_FETCH_STATUS", 2],
    ["too large", reply(200, " ".repeat(262_145)), "ERR_FETCH_TOO_LARGE"],
    ["no connection", unreachable, "ERR_FETCH_FAILED"],
  ] as const) {
    test(`${name}: ${expect}`, async () => {
      const { ask, origin } = verifierOf(input, { issuer });
      assert.equal(await ask("a"), expect);
      assert.equal(origin.requests.length, requests);
    });
  }
});

const kept = "with issuer=https://op.example; serves a | max-age=10, must-revalidate; a = a; sent config /jwks";
const moved = "@/other serves b | max-age=10, must-revalidate; names /other";
histories(
  "the discovery document is cached",
  {
    "for an hour without caching headers": `${kept}; +3599.999s; a = a; sent /jwks; +10s; a = a; sent config /jwks`,
    ...Object.fromEntries(
      Object.entries({ "max-age=1000": 1_000, "no-store": 300, "max-age=604800": 86_400 }).map(([caching, seconds]) => [
        `for as long as it says, but at least five minutes and at most a day: ${caching}`,
        `with issuer=https://op.example; serves a | max-age=10, must-revalidate; @config ${caching}; a = a; sent config /jwks
      +${seconds * 1_000 - 1}ms; a = a; sent /jwks; +10s; a = a; sent config /jwks`,
      ]),
    ),
    "but not used once it names another issuer, on any number of calls": `
    ${kept}; @config another issuer; +1h; each 10s for 50s: a = issuer`,
    "for a day during an outage of its server": `${kept}; @config 503; +1h; +86399s; a = a; +10s; a = status`,
    ...Object.fromEntries(
      ["503", "unreachable"].map((does) => [
        `during an outage of the jwks_uri: ${does}`,
        `${kept}; ${moved}; ${does}; +10s; a = status|failed; +10s; a = status|failed; sent /jwks /jwks`,
      ]),
    ),
    ...Object.fromEntries(
      ["404", "301", "html"].map((does) => [
        `until the jwks_uri returns ${does}; then it is refetched if it is older than a minute`,
        `${kept}; ${moved}; ${does}; +10s; a = status|redirect|body; +49.999s; sent /jwks; b = status|redirect|body
      sent /jwks; +2s; b = b; sent config /other`,
      ]),
    ),
    "until a refresh, which finds a new jwks_uri while the old one still works": `
    ${kept}; ${moved}; b = unknown; sent past; refresh = ok; sent config+past /other+past
    b = b; +10s; b = b; sent /other`,
    "until an unknown kid, if it is older than a minute": `
    with issuer=https://op.example; serves a | max-age=86400; a = a; @/other serves b | max-age=86400; names /other
    +59.999s; sent config /jwks; x = unknown; sent /jwks; +1ms; b = b; sent config /other`,
    // Nine requests for the document, and many for the set.
    ...Object.fromEntries(
      ["names /jwks", "@config 503"].map((does) => [
        `and refetched at most once a minute, despite any number of unknown kids: ${does}`,
        `with issuer=https://op.example maxWaitMs=0; serves a | max-age=10, must-revalidate; a = a; sent 2; ${does}
      each 2s for 600s: new = unknown|later|status
      sent 9 config`,
      ]),
    ),
    "and used for a refresh during an outage of its server": `${kept}; @config 503; serves b; refresh = ok; b = b`,
    "and a set from a new jwks_uri is used even if it is older than the stored one": `
    ${kept}; +1s; @/other serves b | Age: 5; names /other; refresh = ok; b = b`,
    "but a refresh does not accept an earlier request for it": `
    with issuer=https://op.example; slowly 100ms serves a; a = waits; +50ms; refresh = waits; ${moved}; +150ms
    got a; got ok; b = b`,
    "and a new jwks_uri does not get the old one's ETag": `
    ${kept}; @/other serves b; names /other; +1h; b = b; sent config+plain /other+plain; a = unknown`,
  },
  "",
  {
    "another issuer": document({ issuer: "https://evil.example", jwks_uri: jwks }),
    ...Object.fromEntries(
      ["max-age=1000", "no-store", "max-age=604800"].map((caching) => [
        caching,
        document({ issuer: "https://op.example", jwks_uri: "https://op.example/jwks" }, { "Cache-Control": caching }),
      ]),
    ),
  },
);

describe("URLs", () => {
  const rows: [url: string, expect: string, options?: VerifierOptions][] = [
    ["https://op.example/jwks", "accepted"],
    ["https://127.0.0.1/jwks", "accepted"],
    ["http://127.0.0.1:8080/jwks", "accepted"],
    ["http://127.9.9.9/jwks", "accepted"],
    ["http://[::1]:8080/jwks", "accepted"],
    ["http://localhost/jwks", "accepted"],
    ["http://LOCALHOST/jwks", "accepted"],
    ["http://op.localhost/jwks", "accepted"],
    ["http://op.example/jwks", secure],
    ["http://op.example/jwks", "accepted", { allowInsecure: true }],
    ["http://127.0.0.1.op.example/jwks", secure],
    ["http://localhost.op.example/jwks", secure],
    ["http://notlocalhost/jwks", secure],
    ["http://127.0.0.1@op.example/jwks", secure],
    ["http://0.0.0.0/jwks", secure],
    ["http://169.254.169.254/jwks", secure],
    ["http://10.0.0.1/jwks", secure],
    ["http://[::ffff:127.0.0.1]/jwks", secure],
    ["https://user@op.example/jwks", secure],
    ["https://:pass@op.example/jwks", secure, { allowInsecure: true }],
    ["ftp://op.example/jwks", secure, { allowInsecure: true }],
    ["file:///etc/jwks", secure, { allowInsecure: true }],
    ["data:application/json,{}", secure, { allowInsecure: true }],
    ["op.example/jwks", secure],
    ["//op.example/jwks", secure],
    [`https://op.example/${"a".repeat(2_029)}`, "accepted"],
    [`https://op.example/${"a".repeat(2_030)}`, secure],
    ["", secure],
  ];
  for (const [url, expect, options] of rows) {
    test(`${JSON.stringify(url)}${options === undefined ? "" : " with allowInsecure"}: ${expect}`, async () => {
      for (const where of [{ issuer: url }, { jwksUri: url }]) {
        assert.equal(await outcome(() => createRemoteKeySet({ ...where, ...options }) && "accepted"), expect);
      }
    });
  }

  test("an issuer URL must not have a query or fragment (OpenID Connect Discovery section 3)", async () => {
    for (const end of ["?", "?a=b", "#", "/#a"]) {
      const url = `https://op.example${end}`;
      assert.equal(await outcome(() => createRemoteKeySet({ issuer: url })), "ERR_OPTION_INVALID", url);
      for (const each of [url, { issuer: url, jwksUri: jwks }]) {
        const guard = () => createBearerGuard({ issuer: each, audience: "a" });
        assert.equal(await outcome(guard), "ERR_OPTION_INVALID", url);
      }
      assert.equal(await outcome(() => createRemoteKeySet({ jwksUri: url }) && "accepted"), "accepted");
    }
  });
});

const victim = "https://op.example";
const evil = "https://evil.example";
const attackerKey = named("a", ecKey("attacker"));
const rsaEntry = entryOf(named("rsa", rsaKey()), { alg: "RS256", use: "sig" });

const claims = { iss: victim, aud: "rp", sub: "s", exp: Date.parse("2026-11-20T13:00:00Z") / 1000 };

const check = ({ keys, clock }: Verifier, token: string, options: Partial<VerifyOptions> = {}): Promise<string> =>
  outcome(async () => {
    const algorithms = ["ES256", "RS256", "PS256"];
    const verified = await verify(token, { keys, issuer: victim, audience: "rp", algorithms, clock, ...options });
    return verified.claims.sub;
  });

const verifier = (): Promise<Verifier> => warmVerifier(servedSet([entry("a"), rsaEntry]));

const sign = (header: object, key: object = ecKey("a"), more: object = {}): string =>
  compact({ alg: "ES256", kid: "a", ...header }, { ...claims, ...more }, signature("ES256", key));

// Attacks without a key set, such as the alg none, are in test/token/verify.test.ts; hostile sets are in test/jwk/read.test.ts.

test("accepts valid tokens", async () => {
  assert.equal(await check(await verifier(), sign({})), "s");
  const rs256 = compact({ alg: "RS256", kid: "rsa" }, claims, signature("RS256", rsaKey()));
  assert.equal(await check(await verifier(), rs256), "s");
});

test("a URL in a token's header is never fetched (RFC 8725 section 3.10)", async () => {
  for (const name of ["jku", "x5u"]) {
    const target = await verifier();
    assert.equal(await check(target, sign({ [name]: `${evil}/keys` })), "s");
    assert.equal(await check(target, sign({ [name]: `${evil}/keys`, kid: "x" }, attackerKey)), "ERR_TOKEN_KID_UNKNOWN");
    assert.deepEqual(
      target.origin.requests.map(({ url }) => url),
      [jwksUri],
    );
  }
});

const metadata = (of: string): Script => reply(200, JSON.stringify({ issuer: of, jwks_uri: `${of}/jwks` }));

describe("cache poisoning across issuers, with two key sets that share one kid", () => {
  const both = routed({
    [`${victim}/.well-known/openid-configuration`]: metadata(victim),
    [`${evil}/.well-known/openid-configuration`]: metadata(evil),
    [`${victim}/jwks`]: served(["a"]),
    [`${evil}/jwks`]: servedSet([entryOf(attackerKey)]),
  });
  const ownSet = verifierOf(both, { issuer: victim });
  const evilSet = verifierOf(both, { issuer: evil });
  const forged = sign({}, attackerKey);

  test("each key set verifies only its own issuer's tokens, in any order", async () => {
    assert.equal(await check(evilSet, sign({}, attackerKey, { iss: evil }), { issuer: evil }), "s");
    assert.equal(await check(ownSet, forged), "ERR_TOKEN_SIGNATURE");
    assert.equal(await check(ownSet, sign({})), "s");
    assert.equal(await check(evilSet, sign({}, ecKey("a"), { iss: evil }), { issuer: evil }), "ERR_TOKEN_SIGNATURE");
  });

  test("one issuer's token is not accepted for the other issuer", async () => {
    assert.equal(await check(ownSet, sign({}, ecKey("a"), { iss: evil })), "ERR_TOKEN_CLAIM");
    assert.equal(await check(evilSet, forged, { issuer: evil }), "ERR_TOKEN_CLAIM");
  });

  test("one issuer's stored state is not accepted for the other issuer", async () => {
    const state = evilSet.keys.state() as KeySetState;
    const target = verifierOf(both, { issuer: victim, state });
    assert.equal(await check(target, forged), "ERR_TOKEN_SIGNATURE");
  });

  test("one issuer's discovery document is not accepted for the other issuer", async () => {
    const copied = verifierOf(routed({ [`${victim}/.well-known/openid-configuration`]: metadata(evil) }), {
      issuer: victim,
    });
    assert.equal(await check(copied, forged), "ERR_DISCOVERY_ISSUER");
    assert.equal(copied.origin.requests.length, 1);
  });
});
