import { withDeadline } from "../../base/async.ts";
import { deltaSeconds, httpDate } from "../../base/cache-control.ts";
import type { Clock } from "../../base/clock.ts";
import { FetchError } from "../../base/errors.ts";
import { memberOf } from "../../base/json.ts";
import { traced } from "../../base/tracing.ts";
import { shownUrl } from "../../base/urls.ts";
import { type RequestCaching, isDeadConnection, isRedirect, requestInit, systemCode } from "./fetch-compat.ts";
import type { CachingHeaders } from "./freshness.ts";

/** The part of the global `fetch` that jwksd uses. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface FetchOptions extends RequestCaching {
  readonly fetch: Fetch;
  readonly clock: Clock;
  /** Time limit for the whole response, in milliseconds. */
  readonly timeoutMs: number;
  /** Maximum size of the decoded body, in bytes. */
  readonly maxBytes: number;
  /** Aborts the request. */
  readonly signal: AbortSignal;
  /** Accepted media types of the body. `+json` accepts all `application` types with that suffix. Default: any. */
  readonly mediaTypes?: readonly string[] | undefined;
}

/** A 200 response with its body, or a 304 response without a body. */
export interface Fetched {
  readonly text: string | undefined;
  /** Size of the decompressed body, in bytes. */
  readonly bytes: number;
  readonly etag: string | undefined;
  readonly headers: CachingHeaders;
}

/**
 * Fetches a document, with a size limit and a time limit. Does not follow redirects.
 *
 * @throws FetchError `ERR_FETCH_FAILED`, `ERR_FETCH_TIMEOUT`, `ERR_FETCH_STATUS`, `ERR_FETCH_REDIRECT`,
 * `ERR_FETCH_TOO_LARGE`, `ERR_FETCH_BODY`
 */
export function fetchJson(url: string, options: FetchOptions): Promise<Fetched> {
  return traced("jwksd fetch", { "url.full": shownUrl(url) }, () => fetchUntraced(url, options));
}

async function fetchUntraced(url: string, options: FetchOptions): Promise<Fetched> {
  const { clock, timeoutMs, signal } = options;
  const expired = (): FetchError =>
    new FetchError("ERR_FETCH_TIMEOUT", `${shownUrl(url)}: no response within ${timeoutMs} ms`);
  // Cancels a body that is not read to the end.
  const end = new AbortController();
  try {
    return await withDeadline((signal) => request(url, options, AbortSignal.any([signal, end.signal])), {
      clock,
      timeoutMs,
      signal,
      expired,
    });
  } catch (error) {
    if (error instanceof FetchError) throw error;
    signal.throwIfAborted();
    throw new FetchError("ERR_FETCH_FAILED", `${shownUrl(url)}: no response (${failureText(error)})`, { cause: error });
  } finally {
    end.abort();
  }
}

async function request(url: string, options: FetchOptions, signal: AbortSignal): Promise<Fetched> {
  const init = requestInit(options, signal);
  // Nothing was received, so a new connection may work.
  const response = await options.fetch(url, init).catch((error: unknown) => {
    if (!isDeadConnection(error) || signal.aborted) throw error;
    return options.fetch(url, init);
  });
  const reader = response.body?.getReader();
  // The caller's fetch may ignore its signal and return a response after the abort.
  const leave = (): void => void reader?.cancel().catch(() => {});
  if (signal.aborted) leave();
  else signal.addEventListener("abort", leave, { once: true });
  const { status } = response;
  if (isRedirect(response)) {
    throw new FetchError("ERR_FETCH_REDIRECT", `${shownUrl(url)} responded with a redirect, which is not followed`);
  }
  const isUseful = status === 200 || (status === 304 && options.etag !== undefined);
  if (!isUseful) {
    throw new FetchError("ERR_FETCH_STATUS", `${shownUrl(url)} responded with status ${status}`, {
      retryAfterSeconds: retryAfterSeconds(response.headers, options.clock.now()),
      answered: status,
    });
  }
  const header = (name: string): string | undefined => response.headers.get(name) ?? undefined;
  if (status === 200) checkMediaType(url, header("content-type"), options.mediaTypes);
  return {
    ...(status === 200 ? await readText(url, reader, options.maxBytes) : { text: undefined, bytes: 0 }),
    etag: header("etag"),
    headers: {
      cacheControl: header("cache-control"),
      age: header("age"),
      date: header("date"),
      expires: header("expires"),
    },
  };
}

/** Checks a media type, ignoring its parameters. @see RFC 9110 section 8.3.1 @throws FetchError `ERR_FETCH_BODY` */
function checkMediaType(url: string, contentType = "", allowed: readonly string[] | undefined): void {
  const [first = ""] = contentType.split(";", 1);
  const mediaType = first.trim().toLowerCase();
  const isJson = /^application\/[\w!#$&^.-]+\+json$/.test(mediaType);
  if (allowed === undefined || allowed.includes(mediaType) || (isJson && allowed.includes("+json"))) return;
  throw new FetchError(
    "ERR_FETCH_BODY",
    `${shownUrl(url)}: the Content-Type is neither ${allowed.join(" nor ").replace("+json", "a type that ends in +json")}`,
  );
}

/** Reads a body chunk by chunk and stops at the limit, counted in decompressed bytes. */
async function readText(url: string, reader: ReadableStreamDefaultReader<Uint8Array> | undefined, maxBytes: number) {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for (let read = await reader?.read(); read !== undefined && !read.done; read = await reader?.read()) {
    bytes += read.value.length;
    if (bytes > maxBytes)
      throw new FetchError("ERR_FETCH_TOO_LARGE", `${shownUrl(url)}: the body is larger than ${maxBytes} bytes`);
    chunks.push(read.value);
  }
  try {
    return { text: chunks.map((chunk) => decoder.decode(chunk, { stream: true })).join("") + decoder.decode(), bytes };
  } catch {
    throw new FetchError("ERR_FETCH_BODY", `${shownUrl(url)}: the body is not UTF-8`);
  }
}

/**
 * Returns the error's code. With Node's `fetch`, it is in `cause`; with `node:https`, in the error itself. Ignores
 * anything that is not a single word.
 */
function failureText(error: unknown): string {
  return [systemCode(error), memberOf(error, "code"), memberOf(error, "name")].find(isWord) ?? typeof error;
}

function isWord(value: unknown): value is string {
  return typeof value === "string" && /^\w{1,64}$/.test(value);
}

/** Maximum time for which `Retry-After` can delay a new key, in seconds. */
const maxRetryAfterSeconds = 30;

/**
 * Returns `Retry-After` in seconds, at most 30. 0 means that a retry may start immediately. If the header is a date,
 * the time is measured from the response's `Date`, if there is one.
 *
 * @see RFC 9110 section 10.2.3
 */
function retryAfterSeconds(headers: Headers, nowMs: number): number {
  const value = headers.get("retry-after") ?? undefined;
  const fromMs = httpDate(headers.get("date") ?? undefined) ?? nowMs;
  const seconds = deltaSeconds(value) ?? Math.ceil(((httpDate(value) ?? fromMs) - fromMs) / 1000);
  return Math.min(Math.max(seconds, 0), maxRetryAfterSeconds);
}
