import { memberOf } from "../../base/json.ts";
import { outlivesRequests } from "../../base/runtime-support.ts";

// The differences between runtimes that matter to a key set. Everything else in this folder works the same everywhere.
// In workerd (Cloudflare Workers), a fetch or timer may be silently canceled when the request that started it has been
// answered. Therefore, each caller waits with its own timer, overdue fetches are dropped, and no fetch runs in the
// background.

// Declared here, because the DOM types are not loaded. Only browsers have a location with an origin.
const inBrowser = (globalThis as { location?: { origin?: string } }).location?.origin !== undefined;

/** A request's validator and cache mode. */
export interface RequestCaching {
  /** ETag of the stored response. */
  readonly etag?: string | undefined;
  /** Whether caches along the way must revalidate with the origin. */
  readonly bypassCaches?: boolean;
}

/** Accepted media types, if the caller does not name any. */
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
  // A browser's own cache would keep a set for its max-age in addition to this one. If a script sets If-None-Match
  // itself, the browser sends a CORS preflight, so there are no conditional requests in browsers.
  if (inBrowser) return { redirect: "manual", signal, headers, credentials: "omit", cache: "no-store" };
  if (etag !== undefined) headers["If-None-Match"] = etag;
  if (bypassCaches) headers["Cache-Control"] = "no-cache";
  return { redirect: "manual", signal, headers, ...(bypassCaches && hasNoCacheMode() && { cache: "no-cache" }) };
}

/**
 * Reports whether the runtime supports the `no-cache` mode. workerd supports it as of the compatibility date 2025-08-07
 * and throws before that.
 */
function hasNoCacheMode(): boolean {
  try {
    return outlivesRequests || new Request("https://localhost", { cache: "no-cache" }).cache === "no-cache";
  } catch {
    return false;
  }
}

/** Reports whether a response is a redirect. Browsers hide a redirect's status. */
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

/** Returns the system error code, which Node's `fetch` puts in `cause`. */
export function systemCode(error: unknown): unknown {
  return memberOf(memberOf(error, "cause"), "code");
}
