import assert from "node:assert/strict";
import { type WireReply, type WireRequest, exchange, parseReplies, requestText } from "../support/wire.ts";
import type { Setup } from "./guards.ts";
import type { Expected, Row } from "./requests.ts";

// Compares the guard's responses on the wire with the expected ones.

const titles = { 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 503: "Service Unavailable" } as const;

/** Returns the whole reply that is expected. */
export function replyOf(
  expected: Expected,
  method: string,
  charset: string,
): Pick<WireReply, "status" | "headers" | "body"> {
  if (expected.status === 200)
    return { status: 200, headers: {}, body: method === "HEAD" ? "" : (expected.body ?? '{"sub":"alice"}') };
  const { status } = expected;
  const challenge = "challenge" in expected ? expected.challenge : "";
  const [, described] = /error_description="([^"]*)"/.exec(challenge) ?? [];
  const [scheme] = challenge.split(/[ ,]/);
  const needed = `This request needs an access token, sent as 'Authorization: ${scheme} TOKEN'.`;
  const detail =
    status === 503 ? "the token cannot be checked at the moment" : (described ?? expected.detail ?? needed);
  const body = JSON.stringify({ type: "about:blank", title: titles[status], status, detail });
  return {
    status,
    headers: {
      "content-type": `application/problem+json${charset}`,
      "content-length": String(body.length),
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      ...(status === 503 ? { "retry-after": expected.retryAfter } : { "www-authenticate": challenge }),
    },
    body: method === "HEAD" ? "" : body,
  };
}

/** Header fields that the runtimes' servers add to every reply. */
const ofServers = new Set(["date", "connection", "keep-alive", "transfer-encoding", "vary", "server"]);

/** Sends a request to a host and returns the reply without the servers' header fields. */
export async function send(port: number, request: WireRequest, host = "op.example"): Promise<WireReply> {
  const text = requestText(request, ["Connection", "close"]).replace("Host: op.example", `Host: ${host}`);
  const received = await exchange(port, text);
  const [reply] = parseReplies(received, [request.method ?? "GET"]) as [WireReply];
  const headers = Object.fromEntries(Object.entries(reply.headers).filter(([name]) => !ofServers.has(name)));
  return { ...reply, headers };
}

/** Removes the charset that a framework adds to the media type of a handler's response. */
const ofHandler = ({ "content-type": type = "", ...others }: WireReply["headers"]): WireReply["headers"] => ({
  ...others,
  "content-type": type.replace(/; ?charset=utf-8$/i, ""),
});

/**
 * Sends a row's request and compares the reply.
 *
 * @param charset the framework's addition to the media type
 */
export async function check(port: number, row: Row, setup: Setup, charset = ""): Promise<void> {
  const sent = row.request(setup);
  if (row.again === true) await send(port, sent);
  assert.deepEqual(...compared(row, sent, await send(port, sent), charset));
}

/** Returns a reply and the expected one, in the same form. */
export function compared(
  { source, name, expected, byHandler }: Row,
  { method = "GET" }: WireRequest,
  { headers, ...reply }: WireReply,
  charset = "",
): [got: object, expected: object] {
  const { "dpop-nonce": nonce, ...others } = headers;
  const whole = replyOf(expected, method, byHandler === true ? "" : charset);
  // A response from the API itself has its framework's header fields.
  const got = {
    ...reply,
    headers: expected.status === 200 ? {} : byHandler === true ? ofHandler(others) : others,
    hasNonce: nonce !== undefined,
  };
  const row = `${name} (${source})`;
  return [
    { row, ...got },
    { row, ...whole, hasNonce: "nonce" in expected },
  ];
}
