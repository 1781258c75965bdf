import { named } from "../support/keys.ts";
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
