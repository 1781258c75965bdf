import { type Row, checkTable, defaultSetup, expectedSet, methodNotAllowed, notFound, withoutBody } from "./table.ts";

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
