import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ErrorCode } from "../../src/index.ts";
import { type Place, locate } from "../../src/library/provider/paths.ts";
import { refusal } from "../support/refusal.ts";

type Input = [issuer: unknown, mountPrefix?: string | undefined, jwksPath?: string];
const place = (...[issuer, mountPrefix, jwksPath]: Input): Place => ({ issuer, mountPrefix, jwksPath }) as Place;

/** Where clients look for the metadata of an issuer with this path. @see OpenID Connect Discovery 1.0 section 4; RFC 8414 sections 3 and 5 */
const metadataOf = (path: string): string[] => [
  ...new Set([
    `${path}/.well-known/openid-configuration`,
    `/.well-known/openid-configuration${path}`,
    `/.well-known/oauth-authorization-server${path}`,
  ]),
];

const located: [input: Input, jwksUri: string, jwksPaths: string[], discoveryPaths: string[]][] = [
  [["https://op.example"], "https://op.example/jwks", ["/jwks"], metadataOf("")],
  [["https://op.example/"], "https://op.example/jwks", ["/jwks"], metadataOf("")],
  [["https://op.example", "/"], "https://op.example/jwks", ["/jwks"], metadataOf("")],
  [["https://op.example", "/oidc"], "https://op.example/oidc/jwks", ["/oidc/jwks", "/jwks"], metadataOf("")],
  [["https://op.example/", "/oidc/", "/keys"], "https://op.example/oidc/keys", ["/oidc/keys", "/keys"], metadataOf("")],
  [
    ["https://op.example/tenant", undefined, "/a/b.json"],
    "https://op.example/tenant/a/b.json",
    ["/tenant/a/b.json", "/a/b.json"],
    [...metadataOf("/tenant"), "/.well-known/openid-configuration"],
  ],
  [
    ["https://op.example/tenant/", "/oidc", "/jwks"],
    "https://op.example/tenant/oidc/jwks",
    ["/tenant/oidc/jwks", "/oidc/jwks", "/jwks"],
    [...metadataOf("/tenant"), "/.well-known/openid-configuration"],
  ],
  [["http://127.0.0.1:9900"], "http://127.0.0.1:9900/jwks", ["/jwks"], metadataOf("")],
  [["http://localhost:1"], "http://localhost:1/jwks", ["/jwks"], metadataOf("")],
  [["http://op.localhost"], "http://op.localhost/jwks", ["/jwks"], metadataOf("")],
  [["http://[::1]:1"], "http://[::1]:1/jwks", ["/jwks"], metadataOf("")],
  [
    ["https://op.example/a~b!$&'()*+,;=:@-._"],
    "https://op.example/a~b!$&'()*+,;=:@-._/jwks",
    ["/a~b!$&'()*+,;=:@-._/jwks", "/jwks"],
    [...metadataOf("/a~b!$&'()*+,;=:@-._"), "/.well-known/openid-configuration"],
  ],
  [
    ["https://op.example", undefined, "/.well-known/jwks.json"],
    "https://op.example/.well-known/jwks.json",
    ["/.well-known/jwks.json"],
    metadataOf(""),
  ],
];

describe("issuer, mount prefix and path give the public URL and the paths that are answered", () => {
  for (const [input, jwksUri, jwksPaths, discoveryPaths] of located) {
    test(JSON.stringify(input), () => {
      const locations = locate(place(...input));
      assert.equal(locations.issuer, input[0]);
      assert.equal(locations.jwksUri, jwksUri);
      const paths = (route: string) => [...locations.routes].filter(([, to]) => to === route).map(([path]) => path);
      assert.deepEqual(paths("jwks").toSorted(), jwksPaths.toSorted());
      assert.deepEqual(paths("discovery").toSorted(), discoveryPaths.toSorted());
    });
  }
});

const op = "https://op.example";
const clash = "/.well-known/openid-configuration";

const refused: [code: ErrorCode, ...input: Input][] = [
  ["ERR_ISSUER_INVALID", undefined],
  ["ERR_ISSUER_INVALID", ""],
  ["ERR_ISSUER_INVALID", "op.example"],
  ["ERR_ISSUER_INVALID", "http://op.example"],
  ["ERR_ISSUER_INVALID", "http://localhost.example"],
  ["ERR_ISSUER_INVALID", "http://127.0.0.1.example"],
  ["ERR_ISSUER_INVALID", "http://10.0.0.1"],
  ["ERR_ISSUER_INVALID", "ftp://op.example"],
  ["ERR_ISSUER_INVALID", `${op}?`],
  ["ERR_ISSUER_INVALID", `${op}/?a=b`],
  ["ERR_ISSUER_INVALID", `${op}#`],
  ["ERR_ISSUER_INVALID", `${op}/#a`],
  ["ERR_ISSUER_INVALID", "https://user@op.example"],
  ["ERR_ISSUER_INVALID", "https://user:secret@op.example"],
  ["ERR_ISSUER_INVALID", "http://user:secret@op.example/?a#b"],
  // No URLs, or of another scheme.
  ["ERR_ISSUER_INVALID", "https//user:secret@op.example"],
  ["ERR_ISSUER_INVALID", "https://user:secret@op example"],
  ["ERR_ISSUER_INVALID", "https://user:secret@"],
  ["ERR_ISSUER_INVALID", "user:secret@op.example"],
  ["ERR_ISSUER_INVALID", "https://OP.example"],
  ["ERR_ISSUER_INVALID", "HTTPS://op.example"],
  ["ERR_ISSUER_INVALID", "https://op.example:443"],
  ["ERR_ISSUER_INVALID", "https:op.example"],
  ["ERR_ISSUER_INVALID", " https://op.example"],
  ["ERR_ISSUER_INVALID", `${op}/a/../b`],
  ["ERR_ISSUER_INVALID", "https://\xf6p.example"],
  ["ERR_PATH_INVALID", `${op}//`],
  ["ERR_PATH_INVALID", `${op}/a//`],
  ["ERR_PATH_INVALID", `${op}//a`],
  ["ERR_PATH_INVALID", `${op}/%61`],
  ["ERR_PATH_INVALID", `${op}/a b`],
  ["ERR_PATH_INVALID", `${op}/\xc4`],
  ...[
    "",
    "oidc",
    "//",
    "/a//",
    "//a",
    "/a//b",
    "/a?",
    "/a#",
    "/./a",
    "/a/..",
    "/a b",
    "/%61",
    "/\xe9",
    "/a\\b",
    op,
  ].map((mountPrefix): [ErrorCode, ...Input] => ["ERR_PATH_INVALID", op, mountPrefix]),
  ...[
    "",
    "jwks",
    "/",
    "//",
    "/jwks/",
    "//jwks",
    "/a//b",
    "/jwks?a=b",
    "/jwks#a",
    "/./jwks",
    "/../jwks",
    "/jwks/..",
    "/jw ks",
    "/%6awks",
    "/jwks\n",
    op,
  ].map((jwksPath): [ErrorCode, ...Input] => ["ERR_PATH_INVALID", op, undefined, jwksPath]),
  ["ERR_PATH_CLASH", op, undefined, clash],
  ["ERR_PATH_CLASH", op, "/oidc", clash],
  ["ERR_PATH_CLASH", op, "/.well-known", "/openid-configuration"],
  ["ERR_PATH_CLASH", `${op}/tenant`, undefined, `/tenant${clash}`],
  ["ERR_PATH_CLASH", `${op}/tenant`, "/tenant", clash],
  ["ERR_PATH_CLASH", op, undefined, "/.well-known/oauth-authorization-server"],
  ["ERR_PATH_CLASH", `${op}/tenant`, undefined, `${clash}/tenant`],
  ["ERR_PATH_CLASH", `${op}/tenant`, "/.well-known", "/oauth-authorization-server/tenant"],
];

describe("what breaks a rule is refused", () => {
  for (const [code, ...input] of refused) {
    test(`${code}: ${JSON.stringify(input)}`, async () => {
      const error = await refusal(() => locate(place(...input)), code);
      assert.equal(error.name, "ConfigError");
      assert.ok(!error.message.includes("secret"), "a password in the message");
    });
  }
});

test("an issuer that is no URL, without a password, is repeated, with an example of one", () => {
  assert.throws(
    () => locate({ issuer: "login.example.com" }),
    /issuer "login.example.com" is not a URL; write it like https:/,
  );
});

test("without a discovery document its paths are those of others", () => {
  const { routes } = locate({ issuer: `${op}/tenant`, mountPrefix: "/oidc", discovery: false });
  assert.deepEqual([...new Set(routes.values())], ["jwks"]);
  assert.equal(locate({ issuer: op, jwksPath: clash, discovery: false }).jwksUri, op + clash);
});
