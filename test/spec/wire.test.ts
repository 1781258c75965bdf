import assert from "node:assert/strict";
import { METHODS } from "node:http";
import { describe, test } from "node:test";
import { oidcAdapter } from "../adapters/oidc-provider-adapter.ts";
import { serviceAdapter, startedOnce, wireAdapters } from "../support/adapters.ts";
import {
  type HeaderLine,
  type WireReply,
  type WireRequest,
  exchange,
  parseReplies,
  pipeline,
} from "../support/wire.ts";
import {
  comparable,
  defaultSetup,
  expectedSet,
  methodNotAllowed,
  notFound,
  notModified,
  ok,
  withoutBody,
} from "./table.ts";

const document = expectedSet(defaultSetup.keys);
const matching: HeaderLine = ["If-None-Match", document.etag];
const get: WireRequest = { target: "/jwks" };
const head: WireRequest = { ...get, method: "HEAD" };
const full = ok(document);
const unchanged = notModified(document);

/** Bytes on one connection, and the expected replies to these methods, in order, before the server closes it. */
type Exchange = readonly [
  section: string,
  name: string,
  input: string,
  methods: readonly string[],
  replies: readonly WireReply[],
];

const chunkedGet = "GET /jwks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const close = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const getAndBody = `GET /jwks HTTP/1.1\r\nHost: a\r\nContent-Length: ${close.length}\r\n\r\n${close}${close}`;
const getAndChunks = `${chunkedGet}${close.length.toString(16)}\r\n${close}\r\n0\r\n\r\n${close}`;
const headAndBody = `HEAD /jwks HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx${close}`;
const post = "POST /jwks HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na=b";
const kept = "GET /jwks HTTP/1.0\r\nConnection: keep-alive\r\n\r\nHEAD /jwks HTTP/1.0\r\n\r\n";
const conditional = `GET /jwks HTTP/1.0\r\nIf-None-Match: ${document.etag}\r\n\r\n`;

const exchanges: Exchange[] = [
  ["4, HTTP/1.0", "without keep-alive", "GET /jwks HTTP/1.0\r\n\r\n", ["GET"], [full]],
  ["4, HTTP/1.0", "HEAD", "HEAD /jwks HTTP/1.0\r\n\r\n", ["HEAD"], [withoutBody(full)]],
  ["4, HTTP/1.0", "304", conditional, ["GET"], [unchanged]],
  ["4, HTTP/1.0", "with keep-alive", kept, ["GET", "HEAD"], [full, withoutBody(full)]],
  ["4, request", "the body of a GET is not a request: Content-Length", getAndBody, ["GET", "GET"], [full, notFound]],
  ["4, request", "the body of a GET is not a request: chunked", getAndChunks, ["GET", "GET"], [full, notFound]],
  ["4, request", "a body on HEAD", headAndBody, ["HEAD", "GET"], [withoutBody(full), notFound]],
  ["7", "a body on POST", `${post}${close}`, ["POST", "GET"], [methodNotAllowed, notFound]],
];

// These are methods for its parser, but not in HTTP/1.1.
const foreignMethods =
  "DESCRIBE ANNOUNCE SETUP PLAY PAUSE TEARDOWN GET_PARAMETER SET_PARAMETER REDIRECT RECORD FLUSH PRI".split(" ");

const brew = "BREW /jwks HTTP/1.1\r\nHost: a\r\n\r\n";
const gzipped = "GET /jwks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n";
const expecting = "POST /jwks HTTP/1.1\r\nHost: a\r\nExpect: more\r\nConnection: close\r\n\r\n";

// node:http itself returns 400 for an unknown method and does not respond to CONNECT.
const serviceExchanges: Exchange[] = [
  ...["BREW", "get", "GETX", "HEADX", "HEADER", "CONNECT", ...foreignMethods].map((method): Exchange => {
    const target = method === "CONNECT" ? "a:443" : "/jwks";
    const input = `GET /jwks HTTP/1.1\r\nHost: a\r\n\r\n${method} ${target} HTTP/1.1\r\nHost: a\r\n\r\n`;
    return ["7", method, input, ["GET", method], [full, methodNotAllowed]];
  }),
  ["7", "BREW, right after a body", `${post}${brew}`, ["POST", "BREW"], [methodNotAllowed, methodNotAllowed]],
  ["7", "BREW, after an empty line (RFC 9112 section 2.2)", `\r\n\r\n${brew}`, ["BREW"], [methodNotAllowed]],
  ["7", "the HTTP/2 connection preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ["PRI"], [methodNotAllowed]],
  ...["GET", "POST"].map((method): Exchange => {
    const input = `${chunkedGet.replace("GET", method)}ZZ\r\n`;
    const reply = method === "GET" ? full : methodNotAllowed;
    return ["4, request", `a broken ${method} body gets no second reply`, input, [method], [reply]];
  }),
  ["4, request", "an unknown transfer coding gets no second reply", gzipped, ["GET"], [full]],
  ["7", "POST with an expectation", expecting, ["POST"], [methodNotAllowed]],
];

/** Requests on one connection, sent without waiting for replies. */
type Pipeline = readonly [section: string, name: string, rows: readonly (readonly [WireRequest, WireReply])[]];

const at =
  (reply: WireReply) =>
  (target: string): [WireRequest, WireReply] => [{ target }, reply];
const under = (...lines: readonly HeaderLine[]): WireRequest => ({ ...get, headers: lines });
const value = (text: string): WireRequest => under(["If-None-Match", text]);
const others = METHODS.filter((method) => method !== "GET" && method !== "HEAD" && method !== "CONNECT");

const dots = "/./jwks /x/../jwks /../jwks /jwks/. /jwks/.. /jwks/x/.. /%2e/jwks /%2E%2E/jwks";
const escapes = "/jwk%73 /%6awks /jwks%3Fa /jwks%00 /jwks%20 /jwks%0d%0aX:y /jwks\\ /jwks#x /jwks;?";
const absolute = [
  "http://op.example/jwks",
  "https://op.example:8443/jwks?a=b",
  "HTTP://other/jwks",
  "http://a@op.example/jwks",
];
const elsewhere = [
  "http://op.example",
  "http://op.example/",
  "http://op.example/x/jwks",
  "http://op.example//jwks",
  "/http://op.example/jwks",
  "http://op.example?/jwks",
  "http://op.example?a=http://op.example/jwks",
];

const pipelines: Pipeline[] = [
  [
    "4",
    "GET, HEAD and 304 are mixed without an extra byte",
    [
      [get, full],
      [head, withoutBody(full)],
      [under(matching), unchanged],
      [head, withoutBody(full)],
      [{ ...head, headers: [matching] }, unchanged],
      [{ ...get, method: "DELETE" }, methodNotAllowed],
      [{ target: "/x" }, notFound],
      [{ method: "HEAD", target: "/x" }, withoutBody(notFound)],
      [get, full],
    ],
  ],
  ["7", "every other method", others.map((method) => [{ ...get, method }, methodNotAllowed])],
  ["4, path", "the absolute form of a target", [...absolute.map(at(full)), ...elsewhere.map(at(notFound))]],
  ["4, path", "dot segments and escapes are not resolved", `${dots} ${escapes}`.split(" ").map(at(notFound))],
  ["4, path", "OPTIONS * does not name a resource", [[{ method: "OPTIONS", target: "*" }, notFound]]],
  [
    "4, If-None-Match",
    "many lines",
    [
      [under(...manyLines(90), matching), unchanged],
      [under(matching, ...manyLines(90)), unchanged],
      [under(...manyLines(90)), full],
    ],
  ],
  [
    "4, If-None-Match",
    "a huge value below the header limit",
    [
      [value(`${'"x", '.repeat(1200)}${document.etag}`), unchanged],
      [value(`${'"x", '.repeat(1200)}W/${document.etag}`), full],
      [value(`"${"x".repeat(6000)}", ${document.etag}`), unchanged],
      [value(`${",".repeat(6000)}${document.etag}`), unchanged],
    ],
  ],
];

function manyLines(count: number): HeaderLine[] {
  return Array.from({ length: count }, (_, index) => ["If-None-Match", `"${index}"`]);
}

for (const adapter of [...wireAdapters, oidcAdapter]) {
  describe(adapter.name, () => {
    const started = startedOnce(adapter);

    for (const [section, name, input, methods, expect] of adapter === serviceAdapter
      ? [...exchanges, ...serviceExchanges]
      : exchanges) {
      test(`endpoint specification, section ${section}: ${name}`, async () => {
        const { port } = await started(defaultSetup);
        const replies = parseReplies(await exchange(port, input), methods);
        assert.deepEqual(replies.map(comparable), expect);
        // RFC 9110 section 6.6.1
        for (const { headers } of replies) assert.ok(headers["date"]);
      });
    }

    for (const [section, name, rows] of pipelines) {
      test(`endpoint specification, section ${section}: ${name}`, async () => {
        const { port } = await started(defaultSetup);
        const replies = await pipeline(
          port,
          rows.map(([request]) => request),
        );
        // Each reply with its request, so that a failure names it.
        assert.deepEqual(
          replies.map((reply, index) => [rows[index]?.[0], comparable(reply)]),
          rows,
        );
      });
    }

    test("endpoint specification, section 4, If-None-Match: a value above the header limit gets 431, and other requests are served", async () => {
      const { port } = await started(defaultSetup);
      const huge = `GET /jwks HTTP/1.1\r\nHost: a\r\nIf-None-Match: ${'"x", '.repeat(6000)}"y"\r\n\r\n`;
      assert.match((await exchange(port, huge)).toString("latin1"), /^HTTP\/1\.1 431 /);
      assert.deepEqual((await pipeline(port, [get])).map(comparable), [full]);
    });
  });
}
