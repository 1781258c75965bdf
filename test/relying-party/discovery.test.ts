import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createBearer } from "../../src/library/bearer/index.ts";
import { createRemoteKeySet } from "../../src/library/relying-party/index.ts";
import { type Script, delayed, reply, routed, served, unreachable } from "../support/simulated.ts";
import { type Verifier, type VerifierOptions, outcome, verifierOf } from "./setup.ts";

const issuer = "https://op.example/tenant";
const configuration = `${issuer}/.well-known/openid-configuration`;
const jwks = "https://keys.example/jwks";

const document = (metadata: unknown, headers?: Readonly<Record<string, string>>): Script =>
  reply(200, JSON.stringify(metadata), headers);

const discovering = (script: Script, options: VerifierOptions = {}): Verifier =>
  verifierOf(script, { issuer, ...options });

describe("the discovery document", () => {
  const rows: readonly {
    readonly source: string;
    readonly name: string;
    readonly issuer?: string;
    readonly url?: string;
    readonly options?: VerifierOptions;
    readonly input: unknown;
    readonly expect: string;
  }[] = [
    { source: "Discovery 4.3", name: "of the issuer", input: { issuer, jwks_uri: jwks }, expect: "a" },
    {
      source: "Discovery 4.1",
      name: "of an issuer without a path",
      issuer: "https://op.example",
      url: "https://op.example/.well-known/openid-configuration",
      input: { issuer: "https://op.example", jwks_uri: jwks },
      expect: "a",
    },
    {
      source: "Discovery 4.1",
      name: "of an issuer that ends with a slash",
      issuer: `${issuer}/`,
      input: { issuer: `${issuer}/`, jwks_uri: jwks },
      expect: "a",
    },
    {
      source: "Discovery 4.3",
      name: "of the issuer with a slash",
      input: { issuer: `${issuer}/`, jwks_uri: jwks },
      expect: "ERR_DISCOVERY_ISSUER",
    },
    {
      source: "Discovery 4.3",
      name: "of the issuer without its slash",
      issuer: `${issuer}/`,
      input: { issuer, jwks_uri: jwks },
      expect: "ERR_DISCOVERY_ISSUER",
    },
    {
      source: "Discovery 4.3",
      name: "of another issuer",
      input: { issuer: "https://other.example", jwks_uri: jwks },
      expect: "ERR_DISCOVERY_ISSUER",
    },
    {
      source: "Discovery 4.3",
      name: "of the issuer in capitals",
      input: { issuer: issuer.replace("op", "OP"), jwks_uri: jwks },
      expect: "ERR_DISCOVERY_ISSUER",
    },
    {
      source: "Discovery 4.3",
      name: "of the issuer with its port",
      input: { issuer: issuer.replace("example", "example:443"), jwks_uri: jwks },
      expect: "ERR_DISCOVERY_ISSUER",
    },
    {
      source: "Discovery 4.3",
      name: "of a list of issuers",
      input: { issuer: [issuer], jwks_uri: jwks },
      expect: "ERR_DISCOVERY_ISSUER",
    },
    { source: "Discovery 4.3", name: "of no issuer", input: { jwks_uri: jwks }, expect: "ERR_DISCOVERY_ISSUER" },
    { source: "Discovery 4.3", name: "null", input: null, expect: "ERR_DISCOVERY_ISSUER" },
    { source: "Discovery 4.3", name: "a number", input: 7, expect: "ERR_DISCOVERY_ISSUER" },
    { source: "Discovery 3", name: "without jwks_uri", input: { issuer }, expect: "ERR_URL_INSECURE" },
    {
      source: "Discovery 3",
      name: "with a jwks_uri that is no text",
      input: { issuer, jwks_uri: [jwks] },
      expect: "ERR_URL_INSECURE",
    },
    {
      source: "Discovery 3",
      name: "with a relative jwks_uri",
      input: { issuer, jwks_uri: "/jwks" },
      expect: "ERR_URL_INSECURE",
    },
    {
      source: "Discovery 3",
      name: "with an http jwks_uri",
      input: { issuer, jwks_uri: "http://keys.example/jwks" },
      expect: "ERR_URL_INSECURE",
    },
    {
      source: "Discovery 3",
      name: "with an http jwks_uri on loopback, of an https issuer",
      input: { issuer, jwks_uri: "http://127.0.0.1/jwks" },
      expect: "ERR_URL_INSECURE",
    },
    {
      source: "option",
      name: "with an http jwks_uri, allowed",
      options: { allowInsecure: true },
      input: { issuer, jwks_uri: "http://keys.example/jwks" },
      expect: "a",
    },
    {
      source: "Discovery 3",
      name: "with a jwks_uri of another kind",
      options: { allowInsecure: true },
      input: { issuer, jwks_uri: "data:application/json,{}" },
      expect: "ERR_URL_INSECURE",
    },
    {
      source: "design",
      name: "with a password in jwks_uri",
      input: { issuer, jwks_uri: "https://user:pass@keys.example/jwks" },
      expect: "ERR_URL_INSECURE",
    },
  ];
  for (const { source, name, issuer: asked = issuer, url = configuration, options, input, expect } of rows) {
    test(`${source}: ${name}`, async () => {
      const uris = [jwks, "http://keys.example/jwks"].map((uri) => [uri, served(["a"])] as const);
      const { ask, origin } = discovering(routed({ [url]: document(input), ...Object.fromEntries(uris) }), {
        issuer: asked,
        ...options,
      });
      assert.equal(await ask("a"), expect);
      assert.equal(origin.requests.length, expect === "a" ? 2 : 1);
      assert.ok(origin.requests.every(({ init }) => init.redirect === "manual"));
    });
  }

  for (const [name, input, expect] of [
    ["no JSON", reply(200, "<html>"), "ERR_FETCH_BODY"],
    ["a redirect", reply(302, null, { Location: jwks }), "ERR_FETCH_REDIRECT"],
    ["not found", reply(404), "ERR_FETCH_STATUS"],
    ["too large", reply(200, " ".repeat(262_145)), "ERR_FETCH_TOO_LARGE"],
    ["no connection", unreachable, "ERR_FETCH_FAILED"],
  ] as const) {
    test(`issue 3: ${name}`, async () => {
      const { ask, origin } = discovering(input);
      assert.equal(await ask("a"), expect);
      assert.equal(origin.requests.length, 1);
    });
  }
});

/** What was asked for, which is then forgotten. */
const urls = ({ origin }: Verifier): string[] => origin.requests.splice(0).map(({ url }) => url);

describe("the discovery document is kept", () => {
  const other = "https://keys.example/other";
  const routes = (jwksUri: string, headers?: Readonly<Record<string, string>>): Record<string, Script> => ({
    [configuration]: document({ issuer, jwks_uri: jwksUri }, headers),
    [jwksUri]: served([jwksUri === other ? "b" : "a"], { "Cache-Control": "max-age=10, must-revalidate" }),
  });

  const lifetimes: [name: string, cacheControl: string | undefined, seconds: number][] = [
    ["as long as it says", "max-age=1000", 1_000],
    ["for an hour if it says nothing", undefined, 3_600],
    ["for five minutes at least", "no-store", 300],
    ["for a day at most", "max-age=604800", 86_400],
  ];
  for (const [name, cacheControl, seconds] of lifetimes) {
    test(name, async () => {
      const verifier = discovering(
        routed(routes(jwks, cacheControl === undefined ? {} : { "Cache-Control": cacheControl })),
      );
      const { ask, clock } = verifier;
      await ask("a");
      assert.deepEqual(urls(verifier), [configuration, jwks]);
      await clock.advance(seconds * 1000 - 1);
      await ask("a");
      assert.deepEqual(urls(verifier), [jwks]);
      await clock.advance(10_000);
      await ask("a");
      assert.deepEqual(urls(verifier), [configuration, jwks]);
    });
  }

  test("and not when it has become that of another issuer, however often it is asked for", async () => {
    const verifier = discovering(routed(routes(jwks)));
    const { ask, clock, origin } = verifier;
    await ask("a");
    origin.script = routed({
      ...routes(jwks),
      [configuration]: document({ issuer: "https://evil.example", jwks_uri: jwks }),
    });
    await clock.advance(3_600_000);
    for (let times = 0; times < 5; times += 1) {
      assert.equal(await ask("a"), "ERR_DISCOVERY_ISSUER");
      await clock.advance(10_000);
    }
  });

  test("beyond that while its server fails, for a day", async () => {
    const verifier = discovering(routed(routes(jwks)));
    const { ask, clock, origin } = verifier;
    await ask("a");
    origin.script = routed({ ...routes(jwks), [configuration]: reply(503) });
    await clock.advance((3_600 + 86_399) * 1000);
    assert.equal(await ask("a"), "a");
    await clock.advance(10_000);
    assert.equal(await ask("a"), "ERR_FETCH_STATUS");
  });

  test("while the server of the jwks_uri fails", async () => {
    const verifier = discovering(routed(routes(jwks)));
    const { ask, clock, origin } = verifier;
    await ask("a");
    for (const script of [reply(503), unreachable]) {
      origin.script = routed({ ...routes(other), [jwks]: script });
      urls(verifier);
      await clock.advance(10_000);
      await ask("a");
      await clock.advance(10_000);
      await ask("a");
      assert.deepEqual(urls(verifier), [jwks, jwks]);
    }
  });

  for (const [name, script] of [
    ["is not found", reply(404)],
    ["redirects", reply(301, null, { Location: other })],
    ["holds no JWK Set any more", reply(200, "<html>")],
  ] as const) {
    test(`until the jwks_uri ${name}; then it is looked up again, if that was more than a minute ago`, async () => {
      const verifier = discovering(routed(routes(jwks)));
      const { ask, clock, origin } = verifier;
      await ask("a");
      origin.script = routed({ ...routes(other), [jwks]: script });
      await clock.advance(10_000);
      await ask("a");
      await clock.advance(49_999);
      urls(verifier);
      await ask("b");
      assert.deepEqual(urls(verifier), [jwks]);
      await clock.advance(2_000);
      assert.equal(await ask("b"), "b");
      assert.deepEqual(urls(verifier), [configuration, other]);
    });
  }

  test("until a refresh, which notices that the jwks_uri has moved while the old one still answers", async () => {
    const verifier = discovering(routed(routes(jwks)));
    const { ask, keys, clock, origin } = verifier;
    await ask("a");
    origin.script = routed({ ...routes(jwks), ...routes(other) });
    assert.equal(await ask("b"), "ERR_TOKEN_KID_UNKNOWN");
    urls(verifier);
    await keys.refresh();
    assert.deepEqual(
      origin.requests.map(({ headers }) => headers["cache-control"]),
      ["no-cache", "no-cache"],
    );
    assert.deepEqual(urls(verifier), [configuration, other]);
    assert.equal(await ask("b"), "b");
    await clock.advance(10_000);
    await ask("b");
    assert.deepEqual(urls(verifier), [other]);
  });

  test("until an unknown kid comes, if it is older than a minute", async () => {
    const fresh = { "Cache-Control": "max-age=86400" };
    const before = { ...routes(jwks, fresh), [jwks]: served(["a"], fresh) };
    const verifier = discovering(routed(before));
    const { ask, clock, origin } = verifier;
    await ask("a");
    origin.script = routed({ ...before, ...routes(other, fresh) });
    await clock.advance(59_999);
    urls(verifier);
    assert.equal(await ask("x"), "ERR_TOKEN_KID_UNKNOWN");
    assert.deepEqual(urls(verifier), [jwks]);
    await clock.advance(1);
    assert.equal(await ask("b"), "b");
    assert.deepEqual(urls(verifier), [configuration, other]);
  });

  for (const [name, answer] of [
    ["", document({ issuer, jwks_uri: jwks })],
    [", also while it cannot be had", reply(503)],
  ] as const) {
    test(`and is looked up at most once a minute, however many unknown kids come${name}`, async () => {
      const verifier = discovering(routed(routes(jwks)), { maxWaitMs: 0 });
      const { ask, clock, origin } = verifier;
      await ask("a");
      origin.script = routed({ ...routes(jwks), [configuration]: answer });
      urls(verifier);
      for (let second = 0; second < 600; second += 1) {
        await ask(`made-up ${second}`);
        await clock.advance(1_000);
      }
      assert.equal(urls(verifier).filter((url) => url === configuration).length, 9);
    });
  }

  test("through a refresh, if its server fails", async () => {
    const { ask, keys, origin } = discovering(routed(routes(jwks)));
    await ask("a");
    origin.script = routed({ [configuration]: reply(503), [jwks]: served(["b"]) });
    await keys.refresh();
    assert.equal(await ask("b"), "b");
  });

  test("and what is at a new jwks_uri is taken, also if it is older than what was at the other one", async () => {
    const { ask, keys, clock, origin } = discovering(routed(routes(jwks)));
    await ask("a");
    await clock.advance(1_000);
    origin.script = routed({ ...routes(other), [other]: served(["b"], { Age: "5" }) });
    await keys.refresh();
    assert.equal(await ask("b"), "b");
  });

  test("but a refresh is not content with one that was asked for before it", async () => {
    const { ask, keys, clock, origin } = discovering(delayed(100, routed(routes(jwks))));
    const before = ask("a");
    await clock.advance(50);
    const refreshed = keys.refresh();
    origin.script = routed({ ...routes(jwks), ...routes(other) });
    await clock.advance(150);
    assert.deepEqual([await before, await refreshed], ["a", undefined]);
    assert.equal(await ask("b"), "b");
  });

  test("and a new jwks_uri gets no validator of the old one", async () => {
    const verifier = discovering(routed(routes(jwks)));
    const { ask, clock, origin } = verifier;
    await ask("a");
    origin.script = routed(routes(other));
    await clock.advance(3_600_000);
    assert.equal(await ask("b"), "b");
    assert.equal(origin.requests.at(-1)?.url, other);
    assert.equal(origin.requests.at(-1)?.headers["if-none-match"], undefined);
    assert.equal(await ask("a"), "ERR_TOKEN_KID_UNKNOWN");
  });
});

describe("URLs", () => {
  const secure = "ERR_URL_INSECURE";
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
