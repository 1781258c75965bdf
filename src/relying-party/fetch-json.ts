import { withDeadline } from "../async.ts";
import type { Clock } from "../clock.ts";
import { FetchError } from "../errors.ts";
import type { CachingHeaders } from "./freshness.ts";
import { retryAfterSeconds } from "./header-values.ts";
import { shownUrl } from "./urls.ts";

/** The part of `fetch` that is used. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface FetchOptions {
  readonly fetch: Fetch;
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** Of the decoded body. */
  readonly maxBytes: number;
  /** Aborts the request, from outside. */
  readonly signal: AbortSignal;
  /** Validator of the stored response. */
  readonly etag?: string | undefined;
  /** Asks caches on the way for the origin's answer. */
  readonly bypassCaches?: boolean;
}

/** A 200 with its body, or a 304 without. */
export interface Fetched {
  readonly text: string | undefined;
  readonly etag: string | undefined;
  readonly headers: CachingHeaders;
}

/**
 * Gets a JSON document within a time and a size, without following redirects.
 *
 * @throws FetchError `ERR_FETCH_FAILED`, `ERR_FETCH_TIMEOUT`, `ERR_FETCH_STATUS`, `ERR_FETCH_REDIRECT`, `ERR_FETCH_TOO_LARGE`
 */
export async function fetchJson(url: string, options: FetchOptions): Promise<Fetched> {
  const { clock, timeoutMs, signal } = options;
  const expired = (): FetchError =>
    new FetchError("ERR_FETCH_TIMEOUT", `${shownUrl(url)}: no response within ${timeoutMs} ms`);
  // Ends a body that is of no use; after a whole one it does nothing.
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
    throw new FetchError("ERR_FETCH_FAILED", `${shownUrl(url)}: no response (${why(error)})`, { cause: error });
  } finally {
    end.abort();
  }
}

async function request(url: string, options: FetchOptions, signal: AbortSignal): Promise<Fetched> {
  const response = await options.fetch(url, requestInit(options, signal));
  const reader = response.body?.getReader();
  // A fetch that was handed in may not look at its signal, and its response may come after the end.
  const leave = (): void => void reader?.cancel().catch(() => {});
  if (signal.aborted) leave();
  else signal.addEventListener("abort", leave, { once: true });
  const { status } = response;
  // A browser hides the status of a redirect.
  if (response.type === "opaqueredirect" || (status >= 300 && status < 400 && status !== 304)) {
    throw new FetchError("ERR_FETCH_REDIRECT", `${shownUrl(url)}: answered with a redirect, which is not followed`);
  }
  const isUseful = status === 200 || (status === 304 && options.etag !== undefined);
  if (!isUseful) {
    throw new FetchError("ERR_FETCH_STATUS", `${shownUrl(url)}: answered with status ${status}`, {
      retryAfterSeconds: retryAfterSeconds(response.headers, options.clock.now()),
    });
  }
  const header = (name: string): string | undefined => response.headers.get(name) ?? undefined;
  return {
    text: status === 200 ? await readText(url, reader, options.maxBytes) : undefined,
    etag: header("etag"),
    headers: {
      cacheControl: header("cache-control"),
      age: header("age"),
      date: header("date"),
      expires: header("expires"),
    },
  };
}

const inBrowser = (globalThis as { location?: { origin?: string } }).location?.origin !== undefined;
export const inWorkerd: boolean = globalThis.navigator?.userAgent === "Cloudflare-Workers";

function requestInit({ etag, bypassCaches = false }: FetchOptions, signal: AbortSignal): RequestInit {
  const headers: Record<string, string> = { Accept: "application/jwk-set+json, application/json" };
  // The cache of a browser would count max-age once more before this one does. Without it there are no conditional requests: set by a
  // script, their fields would need a preflight.
  if (inBrowser) return { redirect: "manual", signal, headers, credentials: "omit", cache: "no-store" };
  if (etag !== undefined) headers["If-None-Match"] = etag;
  if (bypassCaches) headers["Cache-Control"] = "no-cache";
  return { redirect: "manual", signal, headers, ...(bypassCaches && hasNoCache() && { cache: "no-cache" }) };
}

/** workerd has this mode from the compatibility date 2025-08-07 on, and throws before. */
function hasNoCache(): boolean {
  try {
    return !inWorkerd || new Request("https://localhost", { cache: "no-cache" }).cache === "no-cache";
  } catch {
    return false;
  }
}

type Reader = ReadableStreamDefaultReader<Uint8Array>;

/** Reads by the chunk, so that a body that is too large is not read to its end; compressed ones are counted as they unfold. */
async function readText(url: string, reader: Reader | undefined, maxBytes: number): Promise<string> {
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
    return chunks.map((chunk) => decoder.decode(chunk, { stream: true })).join("") + decoder.decode();
  } catch {
    throw new FetchError("ERR_FETCH_BODY", `${shownUrl(url)}: the body is not UTF-8`);
  }
}

/** The `fetch` of Node has the code of the system in its cause, `node:https` in the error itself. No more than a word is told. */
function why(error: unknown): string {
  const { code, cause, name } = Object(error) as { code?: unknown; cause?: { code?: unknown }; name?: unknown };
  return [cause?.code, code, name].find(isWord) ?? typeof error;
}

function isWord(value: unknown): value is string {
  return typeof value === "string" && /^\w{1,64}$/.test(value);
}
