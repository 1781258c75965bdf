import type { Document } from "../keyset/document.ts";
import { notModified } from "./conditional.ts";

/** A whole response, made once per change. Headers are name, value, name, value, as Node takes them fastest. */
export interface Reply {
  readonly status: number;
  readonly headers: readonly string[];
  /** ASCII; `null` sends none. */
  readonly body: string | null;
}

/** One document under one Cache-Control: the three replies that it can get. */
export interface Representation {
  readonly etag: string;
  readonly get: Reply;
  readonly head: Reply;
  readonly notModified: Reply;
}

/** @see the contract, section 3 */
export const cacheControl = {
  long: "public, max-age=3600, stale-while-revalidate=3600",
  rotation: "public, max-age=300, must-revalidate",
} as const;

export type CacheMode = keyof typeof cacheControl;

/** A page of another origin sees no age of a response otherwise, and would count its freshness from the start. */
const corsHeaders = ["Access-Control-Allow-Origin", "*", "Access-Control-Expose-Headers", "ETag, Age, Date"];

/** @see the contract, section 4 (Response headers); RFC 9110 section 15.4.5 (what a 304 carries); Fetch, CORS protocol */
export function represent(
  document: Document,
  contentType: string,
  cacheControlValue: string,
  cors: boolean,
): Representation {
  const validators = ["ETag", document.etag, "Cache-Control", cacheControlValue, ...(cors ? corsHeaders : [])];
  const headers = [
    "Content-Type",
    contentType,
    "Content-Length",
    String(document.text.length),
    ...validators,
    "X-Content-Type-Options",
    "nosniff",
  ];
  return {
    etag: document.etag,
    get: reply(200, headers, document.text),
    head: reply(200, headers, null),
    notModified: reply(304, validators, null),
  };
}

/** Answers a GET or HEAD. */
export function respond(representation: Representation, method: string, ifNoneMatch: string | null | undefined): Reply {
  if (notModified(ifNoneMatch, representation.etag)) return representation.notModified;
  return withoutBodyOnHead(representation, method);
}

/** HEAD gets the status and the headers of GET. @see RFC 9110 section 9.3.2 */
export function withoutBodyOnHead(replies: { readonly get: Reply; readonly head: Reply }, method: string): Reply {
  return method === "HEAD" ? replies.head : replies.get;
}

/**
 * A refusal as problem details, never stored by a cache (404 and 405 could be, by default).
 *
 * @see RFC 9457 section 3; RFC 9110 section 15.1
 */
export function problem(
  status: number,
  title: string,
  detail: string,
  more: readonly string[] = [],
): { readonly get: Reply; readonly head: Reply } {
  const text = JSON.stringify({ type: "about:blank", title, status, detail });
  const headers = [
    "Content-Type",
    "application/problem+json",
    "Content-Length",
    String(text.length),
    "Cache-Control",
    "no-store",
    "X-Content-Type-Options",
    "nosniff",
    ...more,
  ];
  return { get: reply(status, headers, text), head: reply(status, headers, null) };
}

export const notFound = problem(404, "Not Found", "There is nothing at this path.");

/** @see the contract, section 7 */
export const methodNotAllowed = problem(405, "Method Not Allowed", "This document answers GET and HEAD.", [
  "Allow",
  "GET, HEAD",
]);

function reply(status: number, headers: readonly string[], body: string | null): Reply {
  // The list itself stays unfrozen: Node reads a frozen one more slowly, by a tenth of the time that it takes for the headers.
  return Object.freeze({ status, headers, body });
}
