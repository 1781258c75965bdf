import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createBearer } from "../../src/library/bearer/index.ts";
import { createRemoteKeySet } from "../../src/library/relying-party/index.ts";
import { type Script, reply, routed, served, unreachable } from "../support/simulated.ts";
import { histories } from "./history.ts";
import { type VerifierOptions, outcome, verifierOf } from "./setup.ts";

const wellKnown = "/.well-known/openid-configuration";
const issuer = "https://op.example/tenant";
const configuration = `${issuer}${wellKnown}`;
const jwks = "https://keys.example/jwks";
const [wrong, secure] = ["ERR_DISCOVERY_ISSUER", "ERR_URL_INSECURE"];

const document = (metadata: unknown, headers?: Readonly<Record<string, string>>): Script =>
  reply(200, JSON.stringify(metadata), headers);

const op = "https://op.example";
const insecure = { allowInsecure: true };
/** `metadata` changes a document that names the issuer and `jwks`, or is the document. */
const rows: readonly [
  source: string,
  name: string,
  metadata: unknown,
  expect: string,
  options?: VerifierOptions & { readonly url?: string },
][] = [
  ["4.3", "of the issuer", {}, "a"],
  ["4.1", "of an issuer without a path", { issuer: op }, "a", { issuer: op, url: `${op}${wellKnown}` }],
  ["4.1", "of an issuer that ends with a slash", { issuer: `${issuer}/` }, "a", { issuer: `${issuer}/` }],
  ["4.3", "of the issuer with a slash", { issuer: `${issuer}/` }, wrong],
  ["4.3", "of the issuer without its slash", {}, wrong, { issuer: `${issuer}/` }],
  ["4.3", "of another issuer", { issuer: "https://other.example" }, wrong],
  ["4.3", "of the issuer in capitals", { issuer: issuer.replace("op", "OP") }, wrong],
  ["4.3", "of the issuer with its port", { issuer: issuer.replace("example", "example:443") }, wrong],
  ["4.3", "of a list of issuers", { issuer: [issuer] }, wrong],
  ["4.3", "of no issuer", { issuer: undefined }, wrong],
  ["4.3", "null", null, wrong],
  ["4.3", "a number", 7, wrong],
  ["3", "without jwks_uri", { jwks_uri: undefined }, secure],
  ["3", "with a jwks_uri that is no text", { jwks_uri: [jwks] }, secure],
  ["3", "with a relative jwks_uri", { jwks_uri: "/jwks" }, secure],
  ["3", "with an http jwks_uri", { jwks_uri: "http://keys.example/jwks" }, secure],
  ["3", "with an http jwks_uri on loopback, of an https issuer", { jwks_uri: "http://127.0.0.1/jwks" }, secure],
  ["option", "with an http jwks_uri, allowed", { jwks_uri: "http://keys.example/jwks" }, "a", insecure],
  ["3", "with a jwks_uri of another kind", { jwks_uri: "data:application/json,{}" }, secure, insecure],
  ["design", "with a password in jwks_uri", { jwks_uri: "https://user:pass@keys.example/jwks" }, secure],
];

describe("the discovery document (OpenID Connect Discovery)", () => {
  for (const [source, name, metadata, expect, { url = configuration, ...options } = {}] of rows) {
    test(`${source}: ${name}`, async () => {
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
    ["no JSON", reply(200, "<html>"), "ERR_FETCH_BODY"],
    ["a redirect", reply(302, null, { Location: jwks }), "ERR_FETCH_REDIRECT"],
    // The metadata of RFC 8414 is not there either.
    ["not found", reply(404), "ERR_FETCH_STATUS", 2],
    ["too large", reply(200, " ".repeat(262_145)), "ERR_FETCH_TOO_LARGE"],
    ["no connection", unreachable, "ERR_FETCH_FAILED"],
  ] as const) {
    test(`issue 3: ${name}`, async () => {
      const { ask, origin } = verifierOf(input, { issuer });
      assert.equal(await ask("a"), expect);
      assert.equal(origin.requests.length, requests);
    });
  }
});

const kept = "with issuer=https://op.example; serves a | max-age=10, must-revalidate; a = a; asked config /jwks";
const moved = "@/other serves b | max-age=10, must-revalidate; names /other";
histories(
  "the discovery document is kept",
  {
    "for an hour if it says nothing": `${kept}; +3599.999s; a = a; asked /jwks; +10s; a = a; asked config /jwks`,
    ...Object.fromEntries(
      Object.entries({ "max-age=1000": 1_000, "no-store": 300, "max-age=604800": 86_400 }).map(([caching, seconds]) => [
        `as long as it says, for five minutes at least and a day at most: ${caching}`,
        `with issuer=https://op.example; serves a | max-age=10, must-revalidate; @config ${caching}; a = a; asked config /jwks
      +${seconds * 1_000 - 1}ms; a = a; asked /jwks; +10s; a = a; asked config /jwks`,
      ]),
    ),
    "and not when it has become that of another issuer, however often it is asked for": `
    ${kept}; @config another issuer; +1h; each 10s for 50s: a = issuer`,
    "beyond that while its server fails, for a day": `${kept}; @config 503; +1h; +86399s; a = a; +10s; a = status`,
    ...Object.fromEntries(
      ["503", "unreachable"].map((does) => [
        `while the server of the jwks_uri fails: ${does}`,
        `${kept}; ${moved}; ${does}; +10s; a = status|failed; +10s; a = status|failed; asked /jwks /jwks`,
      ]),
    ),
    ...Object.fromEntries(
      ["404", "301", "html"].map((does) => [
        `until the jwks_uri answers ${does}; then it is looked up again, if that was more than a minute ago`,
        `${kept}; ${moved}; ${does}; +10s; a = status|redirect|body; +49.999s; asked /jwks; b = status|redirect|body
      asked /jwks; +2s; b = b; asked config /other`,
      ]),
    ),
    "until a refresh, which notices that the jwks_uri has moved while the old one still answers": `
    ${kept}; ${moved}; b = unknown; asked past; refresh = ok; asked config+past /other+past
    b = b; +10s; b = b; asked /other`,
    "until an unknown kid comes, if it is older than a minute": `
    with issuer=https://op.example; serves a | max-age=86400; a = a; @/other serves b | max-age=86400; names /other
    +59.999s; asked config /jwks; x = unknown; asked /jwks; +1ms; b = b; asked config /other`,
    // Nine times, and 82 requests for kids.
    ...Object.fromEntries(
      ["names /jwks", "@config 503"].map((does) => [
        `and is looked up at most once a minute, however many unknown kids come: ${does}`,
        `with issuer=https://op.example maxWaitMs=0; serves a | max-age=10, must-revalidate; a = a; asked 2; ${does}
      each 1s for 600s: new = unknown|later|status
      asked 9 config`,
      ]),
    ),
    "through a refresh, if its server fails": `${kept}; @config 503; serves b; refresh = ok; b = b`,
    "and what is at a new jwks_uri is taken, also if it is older than what was at the other one": `
    ${kept}; +1s; @/other serves b | Age: 5; names /other; refresh = ok; b = b`,
    "but a refresh is not content with one that was asked for before it": `
    with issuer=https://op.example; slowly 100ms serves a; a = waits; +50ms; refresh = waits; ${moved}; +150ms
    got a; got ok; b = b`,
    "and a new jwks_uri gets no validator of the old one": `
    ${kept}; @/other serves b; names /other; +1h; b = b; asked config+plain /other+plain; a = unknown`,
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

  test("of issuers have no query and no fragment (Discovery 3)", async () => {
    for (const end of ["?", "?a=b", "#", "/#a"]) {
      const url = `https://op.example${end}`;
      assert.equal(await outcome(() => createRemoteKeySet({ issuer: url })), "ERR_OPTION_INVALID", url);
      for (const each of [url, { issuer: url, jwksUri: jwks }]) {
        const guard = () => createBearer({ issuer: each, audience: "a" });
        assert.equal(await outcome(guard), "ERR_OPTION_INVALID", url);
      }
      assert.equal(await outcome(() => createRemoteKeySet({ jwksUri: url }) && "accepted"), "accepted");
    }
  });
});
