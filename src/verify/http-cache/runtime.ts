import { memberOf } from "../../base/json.ts";
import { outlivesRequests } from "../../base/runtime.ts";

// The differences between runtimes that a key set must know. Everything else in this folder is the same everywhere.
//
// In workerd (Cloudflare Workers), a fetch or a timer may silently end with the response to the request that started it. So each caller waits
// with its own timer, an overdue fetch is forgotten, and no fetch runs in the background.

// The DOM types are not loaded: only browsers have a location with an origin.
const inBrowser = (globalThis as { location?: { origin?: string } }).location?.origin !== undefined;

/** Validator and cache mode of a request. */
export interface RequestCaching {
  /** ETag of the stored response. */
  readonly etag?: string | undefined;
  /** Whether caches along the way must revalidate with the origin. */
  readonly bypassCaches?: boolean;
}

/** Media types that are accepted if the caller names none. */
const defaultTypes = ["application/jwk-set+json", "application/json"];

/** Returns the options for requesting a JSON document without following redirects. */
export function requestInit(
  {
    etag,
    bypassCaches = false,
    mediaTypes = defaultTypes,
  }: RequestCaching & { readonly mediaTypes?: readonly string[] | undefined },
  signal: AbortSignal,
): RequestInit {
  const headers: Record<string, string> = { Accept: mediaTypes.filter((name) => name.includes("/")).join(", ") };
  // A browser's cache would add its max-age to the max-age of this cache. A script that sets If-None-Match itself causes a CORS preflight, so
  // a browser sends no conditional requests.
  if (inBrowser) return { redirect: "manual", signal, headers, credentials: "omit", cache: "no-store" };
  if (etag !== undefined) headers["If-None-Match"] = etag;
  if (bypassCaches) headers["Cache-Control"] = "no-cache";
  return { redirect: "manual", signal, headers, ...(bypassCaches && hasNoCacheMode() && { cache: "no-cache" }) };
}

/**
 * Reports whether the runtime supports the `no-cache` mode. workerd does since the compatibility date 2025-08-07;
 * before that, it throws.
 */
function hasNoCacheMode(): boolean {
  try {
    return outlivesRequests || new Request("https://localhost", { cache: "no-cache" }).cache === "no-cache";
  } catch {
    return false;
  }
}

/** Reports whether a response is a redirect. A browser hides its status. */
export function isRedirect({ type, status }: Response): boolean {
  return type === "opaqueredirect" || (status >= 300 && status < 400 && status !== 304);
}

/**
 * Reports whether the server closed a kept-alive connection just as Node's `fetch` was using it. Other runtimes retry
 * on their own.
 */
export function isDeadConnection(error: unknown): boolean {
  const code = systemCode(error);
  return code === "UND_ERR_SOCKET" || code === "ECONNRESET" || code === "EPIPE";
}

/** Returns the system error code, which Node's `fetch` has in `cause`. */
export function systemCode(error: unknown): unknown {
  return memberOf(memberOf(error, "cause"), "code");
}
