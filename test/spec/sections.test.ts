import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { type Setup, type Target, defaultIssuer, adapters, startedOnce } from "../support/adapters.ts";
import { named, type NamedKey, ecKey, rfc7515Key, rsaKey } from "../support/keys.ts";
import type { HeaderLine, WireReply, WireRequest } from "../support/wire.ts";
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

const document = expectedSet(defaultSetup.keys);
const target = "/jwks";

const row = (
  section: string,
  name: string,
  input: WireRequest,
  expect: WireReply,
  setup: Partial<Setup> = {},
): Row => ({
  section,
  name,
  input,
  expect,
  setup,
});
const matching: readonly HeaderLine[] = [["If-None-Match", document.etag]];

const requests = [
  row("4, responses", "200", { target }, ok(document)),
  row("4, HEAD", "200", { method: "HEAD", target }, withoutBody(ok(document))),
  row("4, responses", "405", { method: "POST", target }, methodNotAllowed),
  row("4, path", "is overridable", { target: "/keys" }, ok(document), { jwksPath: "/keys" }),
  row("4, path", "the default does not exist if it is overridden", { target }, notFound, { jwksPath: "/keys" }),
  row("4, responses", "the CORS header can be turned off", { target }, withoutCors(ok(document)), { cors: false }),
  row(
    "4, responses",
    "the CORS header can be turned off, even for 304",
    { target, headers: matching },
    withoutCors(notModified(document)),
    { cors: false },
  ),
];

// Node writes a body of this size differently than a small one.
const many = { keys: Array.from({ length: 100 }, (_, index) => named(`key ${index}`)) };
const largeDocument = expectedSet(many.keys);
const large = [
  row("4, responses", "200 with 100 keys", { target }, ok(largeDocument), many),
  row("4, responses", "HEAD, 200 with 100 keys", { method: "HEAD", target }, withoutBody(ok(largeDocument)), many),
  row(
    "4, responses",
    "304 with 100 keys",
    { target, headers: [["If-None-Match", largeDocument.etag]] },
    notModified(largeDocument),
    many,
  ),
];

function withoutCors(reply: WireReply): WireReply {
  const { "access-control-allow-origin": _cors, "access-control-expose-headers": _exposed, ...headers } = reply.headers;
  return { ...reply, headers };
}

// "No path parameters, query parameters or request body": other parts of a request have no effect either.
const fields: readonly HeaderLine[] = [
  ["Accept", "application/jwk-set+json"],
  ["Accept", "text/html;q=1, application/jwk-set+json;q=0"],
  ["Range", "bytes=0-9"],
  ["If-Range", document.etag],
  ["If-Modified-Since", "Fri, 31 Dec 9999 23:59:59 GMT"],
  ["If-Match", '"x"'],
  ["Accept-Encoding", "gzip, br"],
  ["Cache-Control", "no-cache"],
  ["Origin", "https://rp.example"],
  ["Authorization", "Bearer x"],
];
const ignored = fields.map((field) => {
  const headers: HeaderLine[] = field[0] === "If-Range" ? [["Range", "bytes=0-9"], field] : [field];
  return row("4, request", `${field.join(": ")} is ignored`, { target, headers }, ok(document));
});

const queries = ["/jwks?", "/jwks?kid=active", "/jwks?a=/x/../y&b=%00", "/jwks?q=?/other"].map((query) =>
  row("4, request", `the query of ${query} is ignored`, { target: query }, ok(document)),
);

const paths = "/ /jwks/ //jwks /jwks// /JWKS /jwks.json /jwk%73 /jwks;a /x/jwks /%2Fjwks"
  .split(" ")
  .flatMap((path) => [path, `${path}?/jwks`])
  .map((path) => row("4, path", `${path} is another path`, { target: path }, notFound));

// A proxy may strip the prefix of the public path, but no other path exists.
const prefixed = [
  ...["/tenant/oidc/jwks", "/oidc/jwks", "/jwks"].map((path) => [path, ok(document)] as const),
  ...["/tenant/jwks", "/oidc/tenant/jwks", "/other/oidc/jwks"].map((path) => [path, notFound] as const),
].map(([path, expect]) =>
  row("4, path", `${path} under issuer path and mount prefix`, { target: path }, expect, {
    issuer: "https://op.example/tenant",
    mountPrefix: "/oidc",
  }),
);

const tag = document.etag;
const hex = tag.slice(1, -1);

/** `If-None-Match`: whether it matches, the rule it tests, and its lines. */
const ifNoneMatch: [matches: boolean, name: string, ...lines: string[]][] = [
  [true, "1: equal to the ETag", tag],
  [true, "1: white space around it is not part of the value", ` \t${tag}\t `],
  [true, "2: *", "*"],
  [true, "2: * among white space", " * "],
  [false, "2: * matches only alone: first in a list", '*, "x"'],
  [false, "2: * matches only alone: last in a list", '"x", *'],
  [false, "2: * matches only alone: twice", "*, *"],
  [false, "2: * matches only alone: before the ETag", `*, ${tag}`],
  [false, "2: * matches only alone: after the ETag", `${tag}, *`],
  [false, "2: * in quotes is a tag", '"*"'],
  [false, "3: weak", `W/${tag}`],
  [false, "3: weak, twice", `W/${tag}, W/${tag}`],
  [true, "3: weak, then strong", `W/${tag}, ${tag}`],
  [true, "3: strong, then weak", `${tag}, W/"x"`],
  [false, "3: the weak mark is upper case", `w/${tag}`],
  [false, "3: a wrong weak mark invalidates the list", `w/${tag}, ${tag}`],
  [false, "3: no space after the weak mark", `W/ ${tag}`],
  [true, "list: first", `${tag}, "b", "c"`],
  [true, "list: in the middle", `"a", ${tag}, "c"`],
  [true, "list: last", `"a", "b", ${tag}`],
  [true, "list: without spaces", `"a",${tag},"c"`],
  [true, "list: tabs", `"a"\t,\t${tag}`],
  [true, "list: 100 members", `${'"x", '.repeat(99)}${tag}`],
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
  [false, "malformed: nothing between two tags", `${tag}${tag}`],
  [false, "malformed: a semicolon instead of a comma", `"a"; ${tag}`],
  [false, "malformed: a space inside a tag", `"a b", ${tag}`],
  [true, "obs-text in another tag", `"\xe9\xff", ${tag}`],
  [false, "obs-text outside quotes", `\xe9, ${tag}`],
  [false, "the comparison is case-sensitive", tag.toUpperCase()],
  [false, "a longer tag", `"${hex}0"`],
  [false, "a shorter tag", `"${hex.slice(1)}"`],
  [true, "lines: the second", '"a"', tag],
  [true, "lines: the first", tag, '"a"'],
  [false, "lines: no match", '"a"', '"b"'],
  [true, "lines: one is empty", "", tag],
  [false, "lines: * matches only alone", "*", tag],
  [true, "lines: weak, then strong", `W/${tag}`, tag],
  [false, "lines: an open quote is not closed by the next line", '"a', tag],
];

const conditional = ifNoneMatch.flatMap(([matches, name, ...lines]) =>
  (["GET", "HEAD"] as const).map((method) => {
    const headers = lines.map((line): HeaderLine => ["If-None-Match", line]);
    const expect = matches ? notModified(document) : method === "GET" ? ok(document) : withoutBody(ok(document));
    return row("4, If-None-Match", `${method}, ${name}`, { method, target, headers }, expect);
  }),
);

checkTable([...requests, ...large, ...ignored, ...queries, ...paths, ...prefixed, ...conditional]);

/** Returns the jwks_uri and the set that a relying party discovers from the issuer (point 3). */
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
const tokens: [section: string, name: string, token: Promise<string>, verdict: string][] = [
  ["1.1", "a token signed with the active key verifies", token(active), "verified"],
  ["1.2", "a token signed with a retiring key verifies", token(retiring), "verified"],
  [
    "1.4",
    "a token signed with another key names a kid that is not published",
    token(named("other")),
    "ERR_JWKS_NO_MATCHING_KEY",
  ],
  ["1.5", "only the kid selects the key", token(active, retiring.kid), "ERR_JWS_SIGNATURE_VERIFICATION_FAILED"],
];

const tenant = "https://op.example/tenant";
const uris: [name: string, setup: Partial<Setup>, uri: string][] = [
  ["the default path is /jwks", {}, "https://op.example/jwks"],
  ["the path is configurable", { jwksPath: "/oauth2/keys.json" }, "https://op.example/oauth2/keys.json"],
  ["the mount prefix comes before the path", { mountPrefix: "/oidc" }, "https://op.example/oidc/jwks"],
  ["the issuer may have a path", { issuer: tenant }, `${tenant}/jwks`],
  [
    "issuer path, mount prefix and path",
    { issuer: "https://op.example/a/b", mountPrefix: "/c/d", jwksPath: "/e/f" },
    "https://op.example/a/b/c/d/e/f",
  ],
  ["one slash between the parts", { issuer: `${tenant}/`, mountPrefix: "/oidc/" }, `${tenant}/oidc/jwks`],
  [
    "one slash after decommissioning an issuer with a slash",
    { issuer: "https://op.example/" },
    "https://op.example/jwks",
  ],
];

for (const adapter of adapters) {
  describe(adapter.name, () => {
    const started = startedOnce(adapter);

    for (const [section, name, input, expect] of tokens) {
      test(`endpoint specification, section ${section}: ${name}`, async () => {
        const { jwks } = await discovered(await started(defaultSetup), defaultIssuer);
        const verdict = await jose.jwtVerify(await input, jose.createLocalJWKSet(jwks)).then(
          () => "verified",
          (error: jose.errors.JOSEError) => error.code,
        );
        assert.equal(verdict, expect);
      });
    }

    for (const [name, input, expect] of uris) {
      test(`endpoint specification, section 1.6: ${name}`, async () => {
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

// Written out, and hashed with another tool, as a check of how the other rows compute their expectations.
const knownSet = {
  text:
    '{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",' +
    '"y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","kid":"2026-11","alg":"ES256","use":"sig"}]}',
  etag: '"52906d1d7ed5557835a1842969792c5e382db0ca46689108f4f60561549c7a05"',
};

const set = (section: string, name: string, setup: Pick<Setup, "keys" | "encryptionKeys">): Row =>
  row(section, name, { target }, ok(expectedSet(setup.keys, setup.encryptionKeys)), setup);
const [rotating, steady] = [{ rotation: true }, { rotation: false }];
const inRotation = ok(document, "rotation");

checkTable([
  row("2, signing key entry", "a known key produces known bytes and a known ETag", { target }, ok(knownSet), {
    keys: [named("2026-11", rfc7515Key)],
  }),
  ...[named("x", ecKey("leading-zero-50")), named("y", ecKey("leading-zero-785"))].map((key) =>
    set("2, signing key entry", `coordinates keep their leading zeros: ${key.kid}`, { keys: [key] }),
  ),
  set("2, JWK set", "signing keys first, then encryption keys", { keys: [a], encryptionKeys: [rsa, p384] }),
  set("2, rule 2", "encryption keys come after all signing keys", { keys: [c, a, b], encryptionKeys: [p521, p384] }),
  set("2, rule 2", "a P-256 encryption key has use enc", { keys: [a], encryptionKeys: [b] }),
  set("2, rule 5", "the allow-list of client algorithms does not widen the signing keys", { keys: [a, b] }),
  set("2, configured keyset", "every entry is published in keyset order", { keys: [b, a, c] }),
  set("2, configured keyset, rule 3", "one entry for each active and retiring key", { keys: [c, b, a] }),

  row("3, long cache", "no predicate", { target }, ok(document, "long")),
  row("3, long cache", "the predicate returns false", { target }, ok(document, "long"), steady),
  row("3, rotation", "the predicate returns true", { target }, inRotation, rotating),
  row("3, rotation", "HEAD", { method: "HEAD", target }, withoutBody(inRotation), rotating),
  row(
    "3, rotation",
    "304, with the same ETag as in long mode",
    { target, headers: matching },
    notModified(document, "rotation"),
    rotating,
  ),
]);

// Each differs from the first in one respect: the set itself, a kid, a key, one key more, one key less, the order, one encryption key more, another alg.
const changes: Pick<Setup, "keys" | "encryptionKeys">[] = [
  { keys: [a, b] },
  { keys: [named("renamed", ecKey("a")), b] },
  { keys: [named("a", ecKey("c")), b] },
  { keys: [a, b, c] },
  { keys: [a] },
  { keys: [b, a] },
  { keys: [a, b], encryptionKeys: [c] },
  { keys: [a, b], encryptionKeys: [{ ...c, alg: "ECDH-ES+A128KW" }] },
];

for (const adapter of adapters) {
  describe(adapter.name, () => {
    const started = startedOnce(adapter);
    test("endpoint specification, section 3: the ETag changes whenever the body changes", async () => {
      const etags = await Promise.all(
        changes.map(async (setup) => (await (await started(setup)).send({ target })).headers["etag"]),
      );
      assert.deepEqual(
        etags,
        changes.map(({ keys, encryptionKeys }) => expectedSet(keys, encryptionKeys).etag),
      );
      assert.equal(new Set(etags).size, changes.length);
    });
  });
}

// CONNECT and TRACE are missing, because a web-standard request cannot have them; the raw socket sends them.
const methods = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "MKCOL", "PURGE", "REPORT"];
const preflight: readonly HeaderLine[] = [
  ["Origin", "https://rp.example"],
  ["Access-Control-Request-Method", "GET"],
];

checkTable([
  ...["/jwks", "/.well-known/openid-configuration", "/jwks?a=b"].flatMap((target) =>
    methods.map((method) => row("7", `${method} ${target}`, { method, target }, methodNotAllowed)),
  ),
  row("7", "a matching If-None-Match has no effect", { method: "POST", target, headers: matching }, methodNotAllowed),
  row("7", "a preflight is refused too", { method: "OPTIONS", target, headers: preflight }, methodNotAllowed),
  row("7", "another path is not found with any method", { method: "POST", target: "/x" }, notFound),
  row("7", "HEAD of another path", { method: "HEAD", target: "/x" }, withoutBody(notFound)),
]);
