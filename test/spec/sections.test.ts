import { named, type NamedKey, ecKey, rfc7515Key, rsaKey } from "../support/keys.ts";
import type { HeaderLine } from "../support/wire.ts";
import {
  type Row,
  checkTable,
  defaultSetup,
  expectedSet,
  methodNotAllowed,
  notFound,
  notModified,
  ok,
  withoutBody,
} from "./table.ts";
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { type Setup, type Target, defaultIssuer, faces, startedOnce } from "../support/faces.ts";

const document = expectedSet(defaultSetup.keys);
const target = "/jwks";

const requests: Row[] = [
  { section: "4, responses", name: "200", input: { target }, expect: ok(document) },
  { section: "4, HEAD", name: "200", input: { method: "HEAD", target }, expect: withoutBody(ok(document)) },
  {
    section: "4, responses",
    name: "405",
    input: { method: "POST", target },
    expect: methodNotAllowed,
  },
  {
    section: "4, path",
    name: "is overridable",
    setup: { jwksPath: "/keys" },
    input: { target: "/keys" },
    expect: ok(document),
  },
  {
    section: "4, path",
    name: "the default is gone when it is overridden",
    setup: { jwksPath: "/keys" },
    input: { target },
    expect: notFound,
  },
  {
    section: "4, responses",
    name: "the CORS header can be switched off",
    setup: { cors: false },
    input: { target },
    expect: withoutCors(ok(document)),
  },
  {
    section: "4, responses",
    name: "the CORS header can be switched off, also on 304",
    setup: { cors: false },
    input: { target, headers: [["If-None-Match", document.etag]] },
    expect: withoutCors(notModified(document)),
  },
];

// Node writes a body of this size another way than a small one.
const manyKeys = Array.from({ length: 100 }, (_, index) => named(`key ${index}`));
const largeDocument = expectedSet(manyKeys);
const large: Row[] = [
  { name: "200 with 100 keys", input: { target }, expect: ok(largeDocument) },
  {
    name: "HEAD, 200 with 100 keys",
    input: { method: "HEAD", target },
    expect: withoutBody(ok(largeDocument)),
  },
  {
    name: "304 with 100 keys",
    input: { target, headers: [["If-None-Match", largeDocument.etag] as const] },
    expect: notModified(largeDocument),
  },
].map(({ name, input, expect }) => ({ section: "4, responses", name, setup: { keys: manyKeys }, input, expect }));

function withoutCors(reply: Row["expect"]): Row["expect"] {
  const { "access-control-allow-origin": _cors, "access-control-expose-headers": _exposed, ...headers } = reply.headers;
  return { ...reply, headers };
}

// "No path parameters, query parameters or request body": what else a request says changes nothing.
const ignored: Row[] = [
  { name: "Accept of its own type", headers: [["Accept", "application/jwk-set+json"]] },
  { name: "Accept of another type", headers: [["Accept", "text/html;q=1, application/jwk-set+json;q=0"]] },
  { name: "Range", headers: [["Range", "bytes=0-9"]] },
  {
    name: "If-Range",
    headers: [
      ["Range", "bytes=0-9"],
      ["If-Range", document.etag],
    ],
  },
  { name: "If-Modified-Since", headers: [["If-Modified-Since", "Fri, 31 Dec 9999 23:59:59 GMT"]] },
  { name: "If-Match", headers: [["If-Match", '"x"']] },
  { name: "Accept-Encoding", headers: [["Accept-Encoding", "gzip, br"]] },
  { name: "Cache-Control of the request", headers: [["Cache-Control", "no-cache"]] },
  { name: "Origin", headers: [["Origin", "https://rp.example"]] },
  { name: "Authorization", headers: [["Authorization", "Bearer x"]] },
].map(({ name, headers }) => ({
  section: "4, request",
  name: `${name} is ignored`,
  input: { target, headers: headers as unknown as HeaderLine[] },
  expect: ok(document),
}));

const queries: Row[] = ["/jwks?", "/jwks?kid=active", "/jwks?a=/x/../y&b=%00", "/jwks?q=?/other"].map((query) => ({
  section: "4, request",
  name: `the query of ${query} is ignored`,
  input: { target: query },
  expect: ok(document),
}));

const paths: Row[] = [
  "/",
  "/jwks/",
  "//jwks",
  "/jwks//",
  "/JWKS",
  "/jwks.json",
  "/jwk%73",
  "/jwks;a",
  "/x/jwks",
  "/%2Fjwks",
]
  .flatMap((path) => [path, `${path}?/jwks`])
  .map((path) => ({ section: "4, path", name: `${path} is another path`, input: { target: path }, expect: notFound }));

// The prefix of the public path may be stripped on the way, but no other path is answered.
const prefixed: Row[] = [
  { path: "/tenant/oidc/jwks", expect: ok(document) },
  { path: "/oidc/jwks", expect: ok(document) },
  { path: "/jwks", expect: ok(document) },
  { path: "/tenant/jwks", expect: notFound },
  { path: "/oidc/tenant/jwks", expect: notFound },
  { path: "/other/oidc/jwks", expect: notFound },
].map(({ path, expect }) => ({
  section: "4, path",
  name: `${path} under issuer path and mount prefix`,
  setup: { issuer: "https://op.example/tenant", mountPrefix: "/oidc" },
  input: { target: path },
  expect,
}));

const tag = document.etag;
const hex = tag.slice(1, -1);

/** `If-None-Match`: whether it matches, what it shows, its lines. */
const ifNoneMatch: [matches: boolean, name: string, ...lines: string[]][] = [
  [true, "1: equal to the ETag", tag],
  [true, "1: white space around it is not part of the value", ` \t${tag}\t `],
  [true, "2: *", "*"],
  [true, "2: * among white space", " * "],
  [false, "2: * counts only alone: first in a list", '*, "x"'],
  [false, "2: * counts only alone: last in a list", '"x", *'],
  [false, "2: * counts only alone: twice", "*, *"],
  [false, "2: * counts only alone: before the ETag", `*, ${tag}`],
  [false, "2: * counts only alone: after the ETag", `${tag}, *`],
  [false, "2: * in quotes is a tag", '"*"'],
  [false, "3: weak", `W/${tag}`],
  [false, "3: weak, twice", `W/${tag}, W/${tag}`],
  [true, "3: weak, then strong", `W/${tag}, ${tag}`],
  [true, "3: strong, then weak", `${tag}, W/"x"`],
  [false, "3: the weak mark is upper case", `w/${tag}`],
  [false, "3: a wrong weak mark spoils the list", `w/${tag}, ${tag}`],
  [false, "3: no space after the weak mark", `W/ ${tag}`],
  [true, "list: first", `${tag}, "b", "c"`],
  [true, "list: in the middle", `"a", ${tag}, "c"`],
  [true, "list: last", `"a", "b", ${tag}`],
  [true, "list: without spaces", `"a",${tag},"c"`],
  [true, "list: tabs", `"a"\t,\t${tag}`],
  [true, "list: of 100", `${'"x", '.repeat(99)}${tag}`],
  [true, "list: empty members", `, ,${tag}, ,`],
  [false, "list: only empty members", ", ,,"],
  [false, "list: none matches", '"a", "b"'],
  [false, "an empty value", ""],
  [true, "quotes: a comma inside another tag", `"a,b", ${tag}`],
  [false, "quotes: the ETag without its quotes, between commas inside another tag", `"a,${hex},b"`],
  [false, "quotes: the ETag starts inside another tag", `"a,${tag}`],
  [false, "quotes: the ETag ends inside another tag", `${tag}a"`],
  [false, "quotes: a comma on both sides", `",${hex},"`],
  [true, "quotes: an empty tag", `"", ${tag}`],
  [true, "quotes: a backslash escapes nothing", `"\\", ${tag}`],
  [false, "quotes: single", `'${hex}'`],
  [false, "malformed: unquoted", hex],
  [false, "malformed: an unquoted member", `x, ${tag}`],
  [false, "malformed: unterminated", `"${hex}`],
  [false, "malformed: without its first quote", `${hex}"`],
  [false, "malformed: unterminated after the match", `${tag}, "a`],
  [false, "malformed: garbage after the match", `${tag} x`],
  [false, "malformed: a parameter", `${tag};a=b`],
  [false, "malformed: no comma", `${tag} ${tag}`],
  [false, "malformed: nothing between two", `${tag}${tag}`],
  [false, "malformed: a semicolon for a comma", `"a"; ${tag}`],
  [false, "malformed: a space inside a tag", `"a b", ${tag}`],
  [true, "obs-text in another tag", `"\xe9\xff", ${tag}`],
  [false, "obs-text outside quotes", `\xe9, ${tag}`],
  [false, "case counts", tag.toUpperCase()],
  [false, "a longer tag", `"${hex}0"`],
  [false, "a shorter tag", `"${hex.slice(1)}"`],
  [true, "lines: the second", '"a"', tag],
  [true, "lines: the first", tag, '"a"'],
  [false, "lines: none", '"a"', '"b"'],
  [true, "lines: an empty one", "", tag],
  [false, "lines: * counts only alone", "*", tag],
  [true, "lines: weak, then strong", `W/${tag}`, tag],
  [false, "lines: a quote left open is closed by no line", '"a', tag],
];

const conditional: Row[] = ifNoneMatch.flatMap(([matches, name, ...lines]) =>
  (["GET", "HEAD"] as const).map((method) => ({
    section: "4, If-None-Match",
    name: `${method}, ${name}`,
    input: { method, target, headers: lines.map((line): HeaderLine => ["If-None-Match", line]) },
    expect: matches ? notModified(document) : method === "GET" ? ok(document) : withoutBody(ok(document)),
  })),
);

checkTable([...requests, ...large, ...ignored, ...queries, ...paths, ...prefixed, ...conditional]);

/** Point 3: what a relying party finds when it starts from the issuer. */
async function discovered(target: Target, issuer: string): Promise<{ jwksUri: string; jwks: jose.JSONWebKeySet }> {
  const { pathname } = new URL(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  const discovery = await target.send({ target: pathname });
  assert.equal(discovery.status, 200);
  const metadata = JSON.parse(discovery.body) as { issuer: string; jwks_uri: string };
  assert.equal(metadata.issuer, issuer);
  const reply = await target.send({ target: new URL(metadata.jwks_uri).pathname });
  assert.equal(reply.status, 200);
  return { jwksUri: metadata.jwks_uri, jwks: JSON.parse(reply.body) as jose.JSONWebKeySet };
}

async function token(key: NamedKey, kid = key.kid): Promise<string> {
  return new jose.SignJWT().setProtectedHeader({ alg: "ES256", kid }).sign(await jose.importJWK({ ...key }, "ES256"));
}

const [active, retiring] = defaultSetup.keys as [NamedKey, NamedKey];
const tokens = [
  { section: "1.1", name: "a token of the active key verifies", input: token(active), expect: "verified" },
  { section: "1.2", name: "a token of a retiring key verifies", input: token(retiring), expect: "verified" },
  {
    section: "1.4",
    name: "a token of another key names a kid that is not there",
    input: token(named("other")),
    expect: "ERR_JWKS_NO_MATCHING_KEY",
  },
  {
    section: "1.5",
    name: "the kid alone picks the key",
    input: token(active, retiring.kid),
    expect: "ERR_JWS_SIGNATURE_VERIFICATION_FAILED",
  },
];

const uris: { section: string; name: string; input: Partial<Setup>; expect: string }[] = [
  { section: "1.6", name: "the default path is /jwks", input: {}, expect: "https://op.example/jwks" },
  {
    section: "1.6",
    name: "the path is configurable",
    input: { jwksPath: "/oauth2/keys.json" },
    expect: "https://op.example/oauth2/keys.json",
  },
  {
    section: "1.6",
    name: "the mount prefix comes before the path",
    input: { mountPrefix: "/oidc" },
    expect: "https://op.example/oidc/jwks",
  },
  {
    section: "1.6",
    name: "the issuer may have a path",
    input: { issuer: "https://op.example/tenant" },
    expect: "https://op.example/tenant/jwks",
  },
  {
    section: "1.6",
    name: "issuer path, mount prefix and path",
    input: { issuer: "https://op.example/a/b", mountPrefix: "/c/d", jwksPath: "/e/f" },
    expect: "https://op.example/a/b/c/d/e/f",
  },
  {
    section: "1.6",
    name: "one slash between the parts",
    input: { issuer: "https://op.example/tenant/", mountPrefix: "/oidc/" },
    expect: "https://op.example/tenant/oidc/jwks",
  },
  {
    section: "1.6",
    name: "one slash after an issuer that ends in one",
    input: { issuer: "https://op.example/" },
    expect: "https://op.example/jwks",
  },
];

for (const face of faces) {
  describe(face.name, () => {
    const started = startedOnce(face);

    for (const { section, name, input, expect } of tokens) {
      test(`section ${section}: ${name}`, async () => {
        const { jwks } = await discovered(await started(defaultSetup), defaultIssuer);
        const verdict = await jose.jwtVerify(await input, jose.createLocalJWKSet(jwks)).then(
          () => "verified",
          (error: jose.errors.JOSEError) => error.code,
        );
        assert.equal(verdict, expect);
      });
    }

    for (const { section, name, input, expect } of uris) {
      test(`section ${section}: ${name}`, async () => {
        const target = await started({ ...defaultSetup, ...input });
        const { jwksUri, jwks } = await discovered(target, input.issuer ?? defaultIssuer);
        assert.equal(jwksUri, expect);
        assert.equal(jwks.keys.length, 2);
      });
    }
  });
}

const [a, b, c] = [named("a"), named("b"), named("c")];
const rsa = named("rsa", rsaKey());
const p384 = named("p384", ecKey("p384", "P-384"));
const p521 = named("p521", { ...ecKey("p521", "P-521"), alg: "ECDH-ES+A256KW" });

// Written out, and hashed by another tool, so that the other rows' way to compute what they expect is held against it.
const knownSet = {
  text:
    '{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",' +
    '"y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","kid":"2026-11","alg":"ES256","use":"sig"}]}',
  etag: '"52906d1d7ed5557835a1842969792c5e382db0ca46689108f4f60561549c7a05"',
};

function set(section: string, name: string, setup: Row["setup"] & {}): Row {
  return {
    section,
    name,
    setup,
    input: { target: "/jwks" },
    expect: ok(expectedSet(setup.keys ?? [], setup.encryptionKeys)),
  };
}

checkTable([
  {
    section: "2, signing key entry",
    name: "a known key gives known bytes and a known ETag",
    setup: { keys: [named("2026-11", rfc7515Key)] },
    input: { target: "/jwks" },
    expect: ok(knownSet),
  },
  set("2, signing key entry", "coordinates keep their leading zeros: x", {
    keys: [named("x", ecKey("leading-zero-50"))],
  }),
  set("2, signing key entry", "coordinates keep their leading zeros: y", {
    keys: [named("y", ecKey("leading-zero-785"))],
  }),
  set("2, JWK set", "signing keys first, then encryption keys", { keys: [a], encryptionKeys: [rsa, p384] }),
  set("2, rule 2", "encryption keys come after all signing keys", { keys: [c, a, b], encryptionKeys: [p521, p384] }),
  set("2, rule 2", "a P-256 encryption key has use enc", { keys: [a], encryptionKeys: [b] }),
  set("2, rule 5", "the allow-list of client algorithms does not widen the signing keys", { keys: [a, b] }),
  set("2, configured keyset", "every entry is published, in the order of the keyset", { keys: [b, a, c] }),
  set("2, configured keyset, rule 3", "one entry for each active and retiring key", { keys: [c, b, a] }),
]);

const documentOfAll = expectedSet(defaultSetup.keys);

const path = "/jwks";

const headers = [["If-None-Match", documentOfAll.etag]] as const;

checkTable([
  { section: "3, long cache", name: "no predicate", input: { target: path }, expect: ok(documentOfAll, "long") },
  {
    section: "3, long cache",
    name: "the predicate returns false",
    setup: { rotation: false },
    input: { target: path },
    expect: ok(documentOfAll, "long"),
  },
  {
    section: "3, rotation",
    name: "the predicate returns true",
    setup: { rotation: true },
    input: { target: path },
    expect: ok(documentOfAll, "rotation"),
  },
  {
    section: "3, rotation",
    name: "HEAD",
    setup: { rotation: true },
    input: { method: "HEAD", target: path },
    expect: withoutBody(ok(documentOfAll, "rotation")),
  },
  {
    section: "3, rotation",
    name: "304, with the same ETag as in long mode",
    setup: { rotation: true },
    input: { target: path, headers },
    expect: notModified(documentOfAll, "rotation"),
  },
]);

const [first, second, third] = [named("a"), named("b"), named("c")];

// Each differs from the first by one thing.
const changes = [
  { name: "the set itself", input: { keys: [first, second] } },
  { name: "a kid", input: { keys: [named("renamed", ecKey("a")), second] } },
  { name: "a key", input: { keys: [named("a", ecKey("c")), second] } },
  { name: "a key more", input: { keys: [first, second, third] } },
  { name: "a key less", input: { keys: [first] } },
  { name: "the order", input: { keys: [second, first] } },
  { name: "an encryption key more", input: { keys: [first, second], encryptionKeys: [third] } },
  { name: "another alg", input: { keys: [first, second], encryptionKeys: [{ ...third, alg: "ECDH-ES+A128KW" }] } },
];

for (const face of faces) {
  describe(face.name, () => {
    const started = startedOnce(face);
    test("section 3: the ETag changes whenever the body changes", async () => {
      const etags = await Promise.all(
        changes.map(async ({ input }) => (await (await started(input)).send({ target: path })).headers["etag"]),
      );
      assert.deepEqual(
        etags,
        changes.map(({ input }) => expectedSet(input.keys, input.encryptionKeys).etag),
      );
      assert.equal(new Set(etags).size, changes.length);
    });
  });
}

const { etag } = expectedSet(defaultSetup.keys);

// Without CONNECT and TRACE, which a web-standard request cannot have; the raw socket sends these.
const methods = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "MKCOL", "PURGE", "REPORT"];

checkTable([
  ...["/jwks", "/.well-known/openid-configuration", "/jwks?a=b"].flatMap((target) =>
    methods.map((method): Row => ({
      section: "7",
      name: `${method} ${target}`,
      input: { method, target },
      expect: methodNotAllowed,
    })),
  ),
  {
    section: "7",
    name: "a matching If-None-Match changes nothing",
    input: { method: "POST", target: "/jwks", headers: [["If-None-Match", etag]] },
    expect: methodNotAllowed,
  },
  {
    section: "7",
    name: "a preflight is refused as well",
    input: {
      method: "OPTIONS",
      target: "/jwks",
      headers: [
        ["Origin", "https://rp.example"],
        ["Access-Control-Request-Method", "GET"],
      ],
    },
    expect: methodNotAllowed,
  },
  {
    section: "7",
    name: "another path is not found, whatever the method",
    input: { method: "POST", target: "/x" },
    expect: notFound,
  },
  {
    section: "7",
    name: "HEAD of another path",
    input: { method: "HEAD", target: "/x" },
    expect: withoutBody(notFound),
  },
]);
