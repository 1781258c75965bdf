import assert from "node:assert/strict";
import { METHODS } from "node:http";
import { describe, test } from "node:test";
import { oidcFace } from "../adapters/oidc-provider-face.ts";
import { serviceFace, startedOnce, wireFaces } from "../support/faces.ts";
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

/** Bytes on one connection, and the replies that must come back, in order, before the server closes it. */
interface Exchange {
  readonly section: string;
  readonly name: string;
  readonly input: string;
  readonly methods: readonly string[];
  readonly expect: readonly WireReply[];
}

const chunkedGet = "GET /jwks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const close = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

const exchanges: Exchange[] = [
  {
    section: "4, HTTP/1.0",
    name: "without keep-alive",
    input: "GET /jwks HTTP/1.0\r\n\r\n",
    methods: ["GET"],
    expect: [full],
  },
  {
    section: "4, HTTP/1.0",
    name: "HEAD",
    input: "HEAD /jwks HTTP/1.0\r\n\r\n",
    methods: ["HEAD"],
    expect: [withoutBody(full)],
  },
  {
    section: "4, HTTP/1.0",
    name: "304",
    input: `GET /jwks HTTP/1.0\r\nIf-None-Match: ${document.etag}\r\n\r\n`,
    methods: ["GET"],
    expect: [unchanged],
  },
  {
    section: "4, HTTP/1.0",
    name: "with keep-alive",
    input: "GET /jwks HTTP/1.0\r\nConnection: keep-alive\r\n\r\nHEAD /jwks HTTP/1.0\r\n\r\n",
    methods: ["GET", "HEAD"],
    expect: [full, withoutBody(full)],
  },
  {
    section: "4, request",
    name: "a body on GET is not taken for a request: Content-Length",
    input: `GET /jwks HTTP/1.1\r\nHost: a\r\nContent-Length: ${close.length}\r\n\r\n${close}${close}`,
    methods: ["GET", "GET"],
    expect: [full, notFound],
  },
  {
    section: "4, request",
    name: "a body on GET is not taken for a request: chunked",
    input: `${chunkedGet}${close.length.toString(16)}\r\n${close}\r\n0\r\n\r\n${close}`,
    methods: ["GET", "GET"],
    expect: [full, notFound],
  },
  {
    section: "4, request",
    name: "a body on HEAD",
    input: `HEAD /jwks HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx${close}`,
    methods: ["HEAD", "GET"],
    expect: [withoutBody(full), notFound],
  },
  {
    section: "7",
    name: "a body on POST",
    input: `POST /jwks HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na=b${close}`,
    methods: ["POST", "GET"],
    expect: [methodNotAllowed, notFound],
  },
];

// To its parser these are methods, but none of HTTP/1.1.
const foreignMethods =
  "DESCRIBE ANNOUNCE SETUP PLAY PAUSE TEARDOWN GET_PARAMETER SET_PARAMETER REDIRECT RECORD FLUSH PRI".split(" ");

// Plain node:http answers 400 to a method that it does not know, and has no answer to CONNECT.
const serviceExchanges: Exchange[] = [
  ...["BREW", "get", "GETX", "HEADX", "HEADER", "CONNECT", ...foreignMethods].map((method) => ({
    section: "7",
    name: method,
    input: `GET /jwks HTTP/1.1\r\nHost: a\r\n\r\n${method} ${method === "CONNECT" ? "a:443" : "/jwks"} HTTP/1.1\r\nHost: a\r\n\r\n`,
    methods: ["GET", method],
    expect: [full, methodNotAllowed],
  })),
  {
    section: "7",
    name: "BREW, right after a body",
    input: "POST /jwks HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na=bBREW /jwks HTTP/1.1\r\nHost: a\r\n\r\n",
    methods: ["POST", "BREW"],
    expect: [methodNotAllowed, methodNotAllowed],
  },
  {
    section: "7",
    name: "BREW, after an empty line (RFC 9112 section 2.2)",
    input: "\r\n\r\nBREW /jwks HTTP/1.1\r\nHost: a\r\n\r\n",
    methods: ["BREW"],
    expect: [methodNotAllowed],
  },
  {
    section: "7",
    name: "the connection preface of HTTP/2",
    input: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    methods: ["PRI"],
    expect: [methodNotAllowed],
  },
  ...["GET", "POST"].map((method) => ({
    section: "4, request",
    name: `a broken body of ${method} gets no second reply`,
    input: `${method} /jwks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n`,
    methods: [method],
    expect: [method === "GET" ? full : methodNotAllowed],
  })),
  {
    section: "4, request",
    name: "an unknown transfer coding gets no second reply",
    input: "GET /jwks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    methods: ["GET"],
    expect: [full],
  },
  {
    section: "7",
    name: "POST with an expectation",
    input: "POST /jwks HTTP/1.1\r\nHost: a\r\nExpect: more\r\nConnection: close\r\n\r\n",
    methods: ["POST"],
    expect: [methodNotAllowed],
  },
];

/** Requests of one connection, sent without waiting for replies. */
interface Pipeline {
  readonly section: string;
  readonly name: string;
  readonly rows: readonly (readonly [WireRequest, WireReply])[];
}

const at =
  (reply: WireReply) =>
  (target: string): [WireRequest, WireReply] => [{ target }, reply];

const pipelines: Pipeline[] = [
  {
    section: "4",
    name: "GET, HEAD and 304 mixed, none sends a byte too many",
    rows: [
      [get, full],
      [head, withoutBody(full)],
      [{ ...get, headers: [matching] }, unchanged],
      [head, withoutBody(full)],
      [{ ...head, headers: [matching] }, unchanged],
      [{ ...get, method: "DELETE" }, methodNotAllowed],
      [{ target: "/x" }, notFound],
      [{ method: "HEAD", target: "/x" }, withoutBody(notFound)],
      [get, full],
    ],
  },
  {
    section: "7",
    name: "every other method",
    rows: METHODS.filter((method) => method !== "GET" && method !== "HEAD" && method !== "CONNECT").map((method) => [
      { ...get, method },
      methodNotAllowed,
    ]),
  },
  {
    section: "4, path",
    name: "the absolute form of a target",
    rows: [
      ...[
        "http://op.example/jwks",
        "https://op.example:8443/jwks?a=b",
        "HTTP://other/jwks",
        "http://a@op.example/jwks",
      ].map(at(full)),
      ...[
        "http://op.example",
        "http://op.example/",
        "http://op.example/x/jwks",
        "http://op.example//jwks",
        "/http://op.example/jwks",
      ].map(at(notFound)),
      ...["http://op.example?/jwks", "http://op.example?a=http://op.example/jwks"].map(at(notFound)),
    ],
  },
  {
    section: "4, path",
    name: "dot segments and escapes are not resolved",
    rows: [
      "/./jwks",
      "/x/../jwks",
      "/../jwks",
      "/jwks/.",
      "/jwks/..",
      "/jwks/x/..",
      "/%2e/jwks",
      "/%2E%2E/jwks",
      "/jwk%73",
      "/%6awks",
      "/jwks%3Fa",
      "/jwks%00",
      "/jwks%20",
      "/jwks%0d%0aX:y",
      "/jwks\\",
      "/jwks#x",
      "/jwks;?",
    ].map(at(notFound)),
  },
  {
    section: "4, path",
    name: "OPTIONS * asks for no resource",
    rows: [[{ method: "OPTIONS", target: "*" }, notFound]],
  },
  {
    section: "4, If-None-Match",
    name: "many lines",
    rows: [
      [{ ...get, headers: [...manyLines(90), matching] }, unchanged],
      [{ ...get, headers: [matching, ...manyLines(90)] }, unchanged],
      [{ ...get, headers: manyLines(90) }, full],
    ],
  },
  {
    section: "4, If-None-Match",
    name: "a huge value, below the limit on headers",
    rows: [
      [{ ...get, headers: [["If-None-Match", `${'"x", '.repeat(1200)}${document.etag}`]] }, unchanged],
      [{ ...get, headers: [["If-None-Match", `${'"x", '.repeat(1200)}W/${document.etag}`]] }, full],
      [{ ...get, headers: [["If-None-Match", `"${"x".repeat(6000)}", ${document.etag}`]] }, unchanged],
      [{ ...get, headers: [["If-None-Match", `${",".repeat(6000)}${document.etag}`]] }, unchanged],
    ],
  },
];

function manyLines(count: number): HeaderLine[] {
  return Array.from({ length: count }, (_, index) => ["If-None-Match", `"${index}"`]);
}

for (const face of [...wireFaces, oidcFace]) {
  describe(face.name, () => {
    const started = startedOnce(face);

    for (const { section, name, input, methods, expect } of face === serviceFace
      ? [...exchanges, ...serviceExchanges]
      : exchanges) {
      test(`section ${section}: ${name}`, async () => {
        const { port } = await started(defaultSetup);
        const replies = parseReplies(await exchange(port, input), methods);
        assert.deepEqual(replies.map(comparable), expect);
        // RFC 9110 section 6.6.1
        for (const { headers } of replies) assert.ok(headers["date"]);
      });
    }

    for (const { section, name, rows } of pipelines) {
      test(`section ${section}: ${name}`, async () => {
        const { port } = await started(defaultSetup);
        const replies = await pipeline(
          port,
          rows.map(([request]) => request),
        );
        // Each with its request, so that a difference names it.
        assert.deepEqual(
          replies.map((reply, index) => [rows[index]?.[0], comparable(reply)]),
          rows,
        );
      });
    }

    test("section 4, If-None-Match: a value above the limit on headers is refused as such, and others are served", async () => {
      const { port } = await started(defaultSetup);
      const huge = `GET /jwks HTTP/1.1\r\nHost: a\r\nIf-None-Match: ${'"x", '.repeat(6000)}"y"\r\n\r\n`;
      assert.match((await exchange(port, huge)).toString("latin1"), /^HTTP\/1\.1 431 /);
      assert.deepEqual((await pipeline(port, [get])).map(comparable), [full]);
    });
  });
}
