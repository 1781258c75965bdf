import { ageSeconds, httpDate } from "../../base/cache-control.ts";
import { FetchError } from "../../base/errors.ts";
import { object } from "../../base/options.ts";
import type { RequestCaching } from "./fetch-compat.ts";
import { type FetchOptions, fetchJson } from "./fetch-json.ts";
import { type CachingHeaders, clockToleranceMs, dateAgeMs } from "./freshness.ts";

/** A stored response as plain data. */
export interface StoredResponse {
  readonly url: string;
  /** The body, as it was received. */
  readonly body: string;
  /** ETag for the next conditional request. */
  readonly etag: string | undefined;
  /** Header fields that determine its freshness. */
  readonly headers: CachingHeaders;
  /** Time of the request, in epoch milliseconds. */
  readonly requestedAt: number;
}

/** A stored response with the value that was read from its body. */
export interface Stored<Value> extends StoredResponse {
  readonly value: Value;
}

/** A fetched or confirmed response. */
export interface FetchedResponse<Value> {
  readonly stored: Stored<Value>;
  readonly status: 200 | 304;
  /** Size of the decompressed body, in bytes. */
  readonly bytes: number;
  /** Time that the response had spent in caches, in seconds. */
  readonly ageSeconds: number;
}

/** Reads a response's value. If the body is invalid, throws an error, and the fetch fails with that error. */
export type Read<Value> = (response: StoredResponse) => Promise<Value>;

/** Reports whether an external value has the shape of a stored response, apart from its URL. */
export function isResponseState(state: Omit<StoredResponse, "url"> | null): boolean {
  const headers: unknown = state?.headers;
  return (
    typeof state?.body === "string" &&
    Number.isFinite(state.requestedAt) &&
    object.holds(headers) &&
    Object.values(headers).every((value) => value === undefined || typeof value === "string") &&
    // If the ETag cannot be sent in a header, every conditional request would fail.
    (state.etag === undefined || (typeof state.etag === "string" && /^[ -~\u0080-\u00ff]*$/.test(state.etag)))
  );
}

/** Options for `fetchStored`: the options of its requests, and a function that reads the body. */
export interface FetchStoredOptions<Value> extends Omit<FetchOptions, keyof RequestCaching> {
  readonly read: Read<Value>;
}

/**
 * Fetches a response. If its body is unchanged, keeps the value that was read before.
 *
 * @throws FetchError, for the same reasons as `fetchJson`, and any error that `read` throws
 */
export async function fetchStored<Value>(
  url: string,
  stored: Stored<Value> | undefined,
  bypassCaches: boolean,
  options: FetchStoredOptions<Value>,
): Promise<FetchedResponse<Value>> {
  const known = stored?.url === url ? stored : undefined;
  const fetched = await fetchOnce(url, known, bypassCaches, options);
  // A cached response must not bring back something that the origin has since replaced.
  return !bypassCaches && isOutdated(fetched.stored, known) ? fetchOnce(url, known, true, options) : fetched;
}

async function fetchOnce<Value>(
  url: string,
  known: Stored<Value> | undefined,
  bypassCaches: boolean,
  { read, ...options }: FetchStoredOptions<Value>,
): Promise<FetchedResponse<Value>> {
  const requestedAt = options.clock.now();
  const { text, bytes, etag, headers } = await fetchJson(url, {
    ...options,
    // A server that computes ETags from the length and time may return 304 for a different body, and would do so every
    // time.
    etag: bypassCaches ? undefined : known?.etag,
    bypassCaches,
  });
  const status = text === undefined ? 304 : 200;
  if (known === undefined || (text !== undefined && text !== known.body)) {
    const response = { url, body: text ?? "", etag, headers, requestedAt };
    return { stored: { ...response, value: await read(response) }, status, bytes, ageSeconds: ageSeconds(headers.age) };
  }
  // The fields in a 304 replace the stored ones. RFC 9111 section 4.3.4
  const { cacheControl = known.headers.cacheControl, expires = known.headers.expires } = headers;
  const updated = status === 304 ? { ...headers, cacheControl, expires } : headers;
  // If a different body's ETag were stored, every later request would get a 304, and never that body.
  const isTagOfBody = etag !== undefined && (status === 200 || opaqueTag(etag) === opaqueTag(known.etag));
  const stored = { ...known, etag: isTagOfBody ? etag : known.etag, headers: updated, requestedAt };
  return { stored, status, bytes, ageSeconds: ageSeconds(headers.age) };
}

/**
 * Reports whether a response differs from the stored one but left the origin earlier, which means that a cache along
 * the way must have returned it. A `Date` counts only if it is older than a clock difference can explain, because each
 * of a server's replicas has its own clock.
 *
 * @see RFC 9111 section 4: of two responses, the one with the newer `Date` is used
 */
export function isOutdated<Value>(next: Stored<Value>, stored: Stored<Value> | undefined): boolean {
  if (stored === undefined || next.value === stored.value || next.url !== stored.url) return false;
  const isOldByDate = (dateOf(next) ?? NaN) < (dateOf(stored) ?? NaN);
  return (
    leftOrigin(next) < leftOrigin(stored) ||
    (isOldByDate && dateAgeMs(next.headers, next.requestedAt) > clockToleranceMs)
  );
}

const dateOf = ({ headers }: StoredResponse): number | undefined => httpDate(headers.date);

/**
 * Returns the time at which the origin sent the response, in epoch milliseconds, based on the `Age` that caches report.
 */
function leftOrigin({ requestedAt, headers }: StoredResponse): number {
  return requestedAt - ageSeconds(headers.age) * 1000;
}

/** Returns an ETag without `W/`. @see RFC 9110 section 8.8.3 */
function opaqueTag(etag: string | undefined): string | undefined {
  return etag?.replace(/^W\//, "");
}

/**
 * Reports whether a stored response may be used despite this error. If a document belongs to a different issuer or
 * names an insecure URL, waiting does not help.
 */
export function isRetryable(error: unknown): boolean {
  return error instanceof FetchError && error.retryable;
}
