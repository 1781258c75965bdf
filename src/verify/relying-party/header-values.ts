/** A new key reaches this verifier at most so much later because of `Retry-After`. */
const maxRetryAfterSeconds = 30;

/** Seconds, at most 2^31, which stands for more than that. @see RFC 9111 section 1.2.2 */
export function deltaSeconds(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+$/.test(text) ? Math.min(Number(text), 2 ** 31) : undefined;
}

/** Milliseconds since the epoch; other formats and zones are invalid. @see RFC 9110 section 5.6.7; RFC 9111 section 4.2 */
export function httpDate(text: string = ""): number | undefined {
  const asctime = /^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}$/;
  const zoned = asctime.test(text) ? `${text} GMT` : text;
  const ms = /^[a-z]{3,9},? [^,]* (GMT|UTC)$/i.test(zoned) ? Date.parse(zoned) : NaN;
  return Number.isNaN(ms) ? undefined : ms;
}

/**
 * The value of `Retry-After` in seconds, at most 30; 0 for at once. A date counts from the `Date` of the response, if it has one.
 *
 * @see RFC 9110 section 10.2.3
 */
export function retryAfterSeconds(headers: Headers, nowMs: number): number {
  const value = headers.get("retry-after") ?? undefined;
  const fromMs = httpDate(headers.get("date") ?? undefined) ?? nowMs;
  const seconds = deltaSeconds(value) ?? Math.ceil(((httpDate(value) ?? fromMs) - fromMs) / 1000);
  return Math.min(Math.max(seconds, 0), maxRetryAfterSeconds);
}
