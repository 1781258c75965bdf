import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { cliDone, cliRefused, temporaryFolder } from "../support/service.ts";

const issuer = { issuer: "https://login.example.com", audience: "https://api.example.com" };
const host = { issuers: [issuer], routes: [{ path: "/*" }] };
const withHost = (members: object): object => ({ for: "nginx", hosts: { "api.example.com": { ...host, ...members } } });
const withRoute = (...routes: readonly object[]): object => withHost({ routes });
const withIssuer = (members: object): object => withHost({ issuers: [{ ...issuer, ...members }] });

/** Invalid configurations, each with a part of the message. */
const invalid: readonly (readonly [config: object, message: RegExp])[] = [
  [{ hosts: { "*": host } }, /--for is missing; name the proxy in front of the guard: nginx, caddy or traefik/],
  [{ for: "envoy", hosts: { "*": host } }, /"for" in the configuration file must be nginx, caddy or traefik/],
  [{ for: "nginx" }, /--issuer and --audience are missing; set both, or add "hosts" to a --config file/],
  [{ for: "nginx", hosts: {} }, /"hosts" must be an object with a member for each host; add one/],
  [{ for: "nginx", hosts: [] }, /"hosts" must be an object/],
  [{ for: "nginx", hosts: { "*": host }, issuer: "https://a.example" }, /remove --issuer, --audience and --scope/],
  [{ for: "nginx", hosts: { "*": host }, host: {} }, /unknown member .* host \(did you mean hosts\?\)/],
  [{ ...withHost({}), listen: "0.0.0.0:9910" }, /--listen is not a loopback address.*--allow-remote-proxies/],
  [{ ...withHost({}), listen: "example.com:9910" }, /--listen is not a loopback address/],
  [{ ...withHost({}), listen: "9910" }, /"listen" in the configuration file must be HOST:PORT or the path/],
  [{ ...withHost({}), socketGroup: "www-data" }, /--socket-group is only for Unix sockets/],
  [
    { ...withHost({}), for: "traefik", certificateHeader: "Client-Cert" },
    /--certificate-header cannot be used with Traefik/,
  ],
  [{ ...withHost({}), certificateHeader: "a b" }, /must be the name of a header/],
  [{ ...withHost({}), replayStore: "postgres://a" }, /must be the URL of a Redis server/],
  [
    { for: "nginx", hosts: { "API.example.com": host } },
    /host "API.example.com" must be either \* or a lowercase host name/,
  ],
  [{ for: "nginx", hosts: { "a.example:443": host } }, /must be either \* or a lowercase host name without a port/],
  [{ for: "nginx", hosts: { "*.example.com": host } }, /must be either \* or a lowercase host name/],
  [{ for: "nginx", hosts: { "[0:0:0:0:0:0:0:1]": host } }, /is not in canonical form; write "\[::1\]"/],
  [{ for: "nginx", hosts: { "127.1": host } }, /host "127.1" is not in canonical form; write "127.0.0.1"/],
  [{ for: "nginx", hosts: { "*": null } }, /host "\*": an object is expected, not null/],
  [withHost({ route: [] }), /host "api.example.com": there is no "route" member; did you mean "routes"\?/],
  [withHost({ routes: [] }), /"routes" is empty, so every request would be refused; add a route/],
  [withHost({ issuers: [] }), /"issuers" is missing, but a route is not public/],
  [withHost({ issuers: [issuer, issuer] }), /an issuer is listed twice; list it once/],
  [withHost({ issuers: ["https://a.example"] }), /issuer 1: an object is expected, not a string/],
  [withHost({ claims: ["a_b", "a-b"] }), /the names in "claims" must differ in their letters or digits/],
  [withHost({ claims: ["é"] }), /the names in "claims" must differ in their letters or digits/],
  [withHost({ cors: "*" }), /the "cors" member must be pass/],
  [withIssuer({ audience: undefined }), /issuer 1: the "audience" member is missing/],
  [withIssuer({ typ: "jwt" }), /issuer 1: the "typ" member must be at\+jwt or JWT/],
  [withIssuer({ tpy: "JWT" }), /issuer 1: there is no "tpy" member; did you mean "typ"\?/],
  [withIssuer({ scope: "a" }), /issuer 1: there is no "scope" member/],
  [withIssuer({ issuer: "http://login.example.com" }), /issuer 1: .*http/],
  [
    withIssuer({ nonceSecret: "x".repeat(32) }),
    /issuer 1: there is no "nonceSecret" member; choose from issuer, jwksUri, audience, [ \w,]*, keySet /,
  ],
  [withIssuer({ certificate: "x" }), /there is no "certificate" member/],
  [withIssuer({ token: "x" }), /there is no "token" member/],
  [withIssuer({ metadata: {} }), /there is no "metadata" member/],
  [withIssuer({ keySet: { timeout: 1 } }), /issuer 1: there is no "timeout" member of "keySet"/],
  ...["issuer", "jwksUri", "clock", "onEvent", "fetch", "state"].map(
    (name) => [withIssuer({ keySet: { [name]: null } }), RegExp(`there is no "${name}" member of "keySet"`)] as const,
  ),
  [
    { for: "nginx", hosts: { "*": { ...host, issuers: [{ ...issuer, dpop: "required" }] } } },
    /"dpop" requires "baseUrl"/,
  ],
  [
    {
      for: "nginx",
      hosts: { "a.example": host, "*": { ...host, issuers: [{ ...issuer, keySet: { maxWaitMs: 5 } }] } },
    },
    /host "\*": issuer 1: the "keySet" of https:\/\/login\.example\.com differs from the "keySet" given for it elsewhere; use the same/,
  ],
  [withRoute({}), /route 1: the "path" member is missing/],
  [withRoute({ path: "/a", scopes: "a" }), /route 1: there is no "scopes" member; did you mean "scope"\?/],
  [withRoute({ path: "/a" }, { path: "/a*" }), /route 2: "path" must be a path that the guard accepts/],
  [withRoute({ path: "/a/../b" }), /route 1: "path" must be a path/],
  [withRoute({ path: "/a", methods: ["get"] }), /route 1: the "methods" member must be .* in upper case/],
  [withRoute({ path: "/a", methods: ["CONNECT"] }), /route 1: the "methods" member must be .* except CONNECT/],
  [withRoute({ path: "/a", methods: [] }), /must be a non-empty array/],
  [withRoute({ path: "/a", public: true, scope: "a" }), /route 1: "public" lets every request through/],
  [withRoute({ path: "/a", public: true, optional: false }), /"public" lets every request through/],
  [withRoute({ path: "/a", public: true, encodedSlashes: true }), /"public" lets every request through/],
  [withRoute({ path: "/a", check: "a" }), /there is no "check" member/],
  [withRoute({ path: "/*" }, { path: "/a" }), /route 2 never applies, because route 1 matches first/],
];

/** Writes a configuration file. */
async function fileWith(t: Parameters<typeof temporaryFolder>[0], config: object | string): Promise<string> {
  const file = join(await temporaryFolder(t), "guard.json");
  await writeFile(file, typeof config === "string" ? config : JSON.stringify(config));
  return file;
}

describe("jwksd guard --check", () => {
  test(`rejects ${invalid.length} invalid configurations and says what to change`, async (t) => {
    for (const [config, message] of invalid) {
      const text = await cliRefused(t, ["guard", "--check", await fileWith(t, config)]);
      assert.match(text, message, JSON.stringify(config));
    }
  });

  test("rejects a file that is incomplete, missing or not an object", async (t) => {
    const text = JSON.stringify(withHost({}));
    for (const content of [text.slice(0, -1), "", "[]", "null", `${text}${text}`])
      assert.match(
        await cliRefused(t, ["guard", "--check", await fileWith(t, content)]),
        /the configuration file .* is not/,
      );
    assert.match(await cliRefused(t, ["guard", "--check", "/missing.json"]), /cannot be read \(ENOENT\)/);
  });

  test("rejects a nonce secret that is too short", async (t) => {
    const secret = await fileWith(t, `${"x".repeat(31)}\n`);
    const flags = ["guard", "--check", await fileWith(t, withHost({})), "--nonce-secret-file", secret];
    assert.match(
      await cliRefused(t, flags),
      /has fewer than 32 characters; generate a secret with: openssl rand -hex 32/,
    );
    await writeFile(secret, "x".repeat(32));
    await cliDone(t, flags);
  });

  test("rejects a password for the replay store on the command line", async (t) => {
    const file = await fileWith(t, withHost({}));
    const flags = ["guard", "--check", file, "--replay-store", "redis://user:secret@127.0.0.1"];
    const text = await cliRefused(t, flags);
    assert.match(text, /--replay-store must not contain a password.*JWKSD_REPLAY_STORE/);
    assert.doesNotMatch(text, /secret@|PGPASSWORD/);
    await cliDone(t, flags.slice(0, 3), { JWKSD_REPLAY_STORE: "redis://user:secret@127.0.0.1" });
  });

  test("prints each route's requirements and the worst-case sizes", async (t) => {
    const api = {
      ...host,
      claims: ["tenant_id"],
      cors: "pass",
      routes: [
        { path: "/health", public: true },
        { path: "/orders/*", methods: ["GET", "HEAD"], scope: "orders:read" },
        { path: "/orders/*", scope: { any: ["orders:write", "admin"] } },
        { path: "/files/*", encodedSlashes: true, acrValues: ["phr"], maxAgeSeconds: 300 },
        { path: "/news", optional: true },
      ],
    };
    const config = { for: "nginx", hosts: { "api.example.com": api, "*": { routes: [{ path: "/*", public: true }] } } };
    const { stdout } = await cliDone(t, ["guard", "--check", await fileWith(t, config)]);
    assert.equal(
      stdout,
      `for nginx, on 127.0.0.1:9910

api.example.com
  tokens of https://login.example.com
  /health    every method  public; preflights pass
  /orders/*  GET HEAD      a token; scope orders:read; preflights pass
  /orders/*  every method  a token; one of the scopes orders:write admin; preflights pass
  /files/*   every method  a token; acr phr; signed in within 300 s; preflights pass; %2F is allowed
  /news      every method  a token is optional; preflights pass
  everything else is refused

every other host
  /*  every method  public

sizes
  response head           at most 8547 bytes; set proxy_buffer_size to at least 12k
  headers to the program  at most 8291 bytes more than the client sends
  head of a check request at most 131072 bytes; larger ones are rejected with 431
`,
    );
  });

  test("warns if several guards, or a restarted one, would accept the same DPoP proof", async (t) => {
    const secret = await fileWith(t, "x".repeat(32));
    const store = { replayStore: "redis://127.0.0.1" };
    const [once, nonce] = [
      /used once with each of them; set the same --replay-store for all/,
      /set --nonce-secret-file/,
    ];
    for (const [settings, dpop, expected] of [
      [{}, "optional", [once, nonce]],
      [{}, "required", [once, nonce]],
      [store, "required", [nonce]],
      [{ nonceSecretFile: secret }, "required", [once]],
      [{ ...store, nonceSecretFile: secret }, "required", []],
      [{}, undefined, []],
    ] as const) {
      const file = await fileWith(t, { ...withIssuer({ dpop }), ...settings });
      const { stdout } = await cliDone(t, ["guard", "--check", file]);
      const [, ...lines] = (stdout.split("\n\nwarnings\n")[1] ?? "").split(/^ {2}/m);
      assert.equal(lines.length, expected.length, stdout);
      for (const [index, warning] of expected.entries()) assert.match(lines[index] ?? "", warning);
    }
  });

  test("names the buffer size that nginx needs, even if a refusal is larger than the identity headers", async (t) => {
    const report = async (proxy: string, members: object): Promise<string> => {
      const config = { for: proxy, hosts: { "*": { ...host, ...members } } };
      return (await cliDone(t, ["guard", "--check", await fileWith(t, config)])).stdout;
    };
    const acrValues = Array.from({ length: 100 }, (_, index) => `urn:example:${"x".repeat(60)}:${index}`);
    const long = { routes: [{ path: "/*", acrValues }] };
    assert.match(await report("nginx", {}), / at most 8520 bytes; set proxy_buffer_size to at least 12k\n/);
    assert.match(await report("nginx", long), / at most \d{5} bytes; set proxy_buffer_size to at least 20k\n/);
    for (const proxy of ["caddy", "traefik"]) assert.doesNotMatch(await report(proxy, long), /buffer/);
  });
});
