import { escapedUnit } from "../base/printable.ts";
import type { Document } from "./document.ts";
import { notModified } from "./if-none-match.ts";

/** A complete response, created once per change. */
export interface Reply {
  readonly status: number;
  /** Headers as a list of alternating names and values, the form that Node writes fastest. */
  readonly headers: readonly string[];
  /** Body in ASCII; `null` if there is none. */
  readonly body: string | null;
}

/** A document's three replies for one Cache-Control value. @see RFC 9110 section 3.2 */
export interface Representation {
  readonly etag: string;
  readonly get: Reply;
  readonly head: Reply;
  readonly notModified: Reply;
}

export const discoveryCacheControl = "public, max-age=3600";
/** @see RFC 7517 section 8.5.2; OpenID Connect Discovery 1.0 section 4.2 */
export const contentTypes = { jwks: "application/jwk-set+json", discovery: "application/json" } as const;

/**
 * CORS headers. They expose `Age` and `Date`, because otherwise a web page from another origin could not tell how old a
 * response is.
 */
const corsHeaders = ["Access-Control-Allow-Origin", "*", "Access-Control-Expose-Headers", "ETag, Age, Date"];

/** Creates a document's replies. @see RFC 9110 section 15.4.5 (fields of a 304); Fetch Standard, CORS protocol */
export function represent(
  document: Document,
  contentType: string,
  cacheControlValue: string,
  cors: boolean,
): Representation {
  const validators = ["ETag", document.etag, "Cache-Control", cacheControlValue, ...(cors ? corsHeaders : [])];
  const headers = contentHeaders(contentType, document.text, validators);
  return {
    etag: document.etag,
    get: reply(200, headers, document.text),
    head: reply(200, headers, null),
    notModified: reply(304, validators, null),
  };
}

/** Returns the reply to a GET or HEAD. */
export function respond(representation: Representation, method: string, ifNoneMatch: string | null | undefined): Reply {
  if (notModified(ifNoneMatch, representation.etag)) return representation.notModified;
  return withoutBodyOnHead(representation, method);
}

/** Returns the reply to GET, or the same reply without its body for HEAD. @see RFC 9110 section 9.3.2 */
export function withoutBodyOnHead(replies: { readonly get: Reply; readonly head: Reply }, method: string): Reply {
  return method === "HEAD" ? replies.head : replies.get;
}

/**
 * Creates an error response with problem details, in ASCII. It tells caches not to store it, because by default they
 * may store 404 and 405 responses.
 *
 * @param more additional header fields
 * @param members additional members of the body
 * @see RFC 9457 section 3; RFC 9110 section 15.1
 */
export function problem(status: number, title: string, detail: string, more: readonly string[] = [], members = {}) {
  const json = JSON.stringify({ type: "about:blank", title, status, detail, ...members });
  const text = json.replaceAll(/[^ -~]/g, escapedUnit);
  const headers = [...contentHeaders("application/problem+json", text, ["Cache-Control", "no-store"]), ...more];
  return { get: reply(status, headers, text), head: reply(status, headers, null) };
}

export const notFound = problem(404, "Not Found", "There is nothing at this path.");

export const unavailable = problem(503, "Service Unavailable", "The keys are currently unavailable.");

/** @see RFC 9110 section 15.5.6 */
export const methodNotAllowed = problem(405, "Method Not Allowed", "This document supports GET and HEAD.", [
  "Allow",
  "GET, HEAD",
]);

/** @param text in ASCII */
function contentHeaders(type: string, text: string, more: readonly string[]): string[] {
  const content = ["Content-Type", type, "Content-Length", String(text.length)];
  return [...content, ...more, "X-Content-Type-Options", "nosniff"];
}

/** Returns a reply's header fields as pairs of name and value. */
export const fieldsOf = ({ headers }: Reply): (readonly [name: string, value: string])[] =>
  headers.flatMap((name, i) => (i % 2 === 0 ? [[name, headers[i + 1] as string] as const] : []));

/**
 * Serializes a reply as raw HTTP, for a socket that will then be closed.
 *
 * @param reason the reason phrase, such as `Not Found`
 * @see RFC 9112 section 4; RFC 9110 section 6.6.1
 */
export function rawHttp(reply: Reply, reason: string = "", method: string = "GET"): string {
  const fields = [...fieldsOf(reply), ["Date", new Date().toUTCString()], ["Connection", "close"]];
  const lines = fields.map(([name, value]) => `${name}: ${value}`);
  return [`HTTP/1.1 ${reply.status} ${reason}`, ...lines, "", method === "HEAD" ? "" : (reply.body ?? "")].join("\r\n");
}

function reply(status: number, headers: readonly string[], body: string | null): Reply {
  // The list itself is not frozen, because Node takes 10% longer to write headers from a frozen list.
  return Object.freeze({ status, headers, body });
}
