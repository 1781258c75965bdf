import { ageSeconds, parseCacheControl } from "../../base/cache-control.ts";
import { durationText } from "../../base/format.ts";
import { lifetimeOf } from "../cache-lifetime.ts";
import { type Note, note } from "../finding.ts";
import type { HttpExchange, Probes } from "../observations.ts";
import { field, sameBytes } from "../read-exchange.ts";
import { counted, quoted } from "../value-text.ts";

const daySeconds = 24 * 3600;
const weekSeconds = 7 * daySeconds;

/** Checks how long caches keep the set and how they revalidate it. */
export function checkCaching(set: HttpExchange, probes: Probes): Note[] {
  return [...checkFreshness(set), ...checkReuse(set), ...checkValidators(set, probes)];
}

function checkFreshness(set: HttpExchange): Note[] {
  const { noStore, freshSeconds, servedSeconds = 0 } = lifetimeOf(set);
  const control = field(set, "cache-control");
  const said = control === undefined ? "neither Cache-Control nor Expires" : `Cache-Control: ${quoted(control)}`;
  if (noStore) return [note("HTTP_NO_STORE", said)];
  const age = ageSeconds(field(set, "age"));
  const isOld = age > (freshSeconds === undefined ? daySeconds : servedSeconds);
  const notes = isOld ? [note("HTTP_AGE", `Age: ${age} (${durationText(age * 1000)}), ${said}`)] : [];
  if (freshSeconds === undefined) return [...notes, note("HTTP_NO_LIFETIME", said)];
  if (servedSeconds > weekSeconds) {
    notes.push(note("HTTP_LIFETIME_LONG", `${control === undefined ? "Expires" : said}: ${days(servedSeconds)}`));
  }
  if (parseCacheControl(control ?? "").has("immutable")) notes.push(note("HTTP_IMMUTABLE", said));
  if (field(set, "etag") === undefined && field(set, "last-modified") === undefined) {
    notes.push(note("HTTP_NO_VALIDATOR", said));
  }
  return notes;
}

const days = (seconds: number): string => counted(Math.round(seconds / 86_400), "day");

/** Checks which caches may reuse the response for another request. */
function checkReuse(set: HttpExchange): Note[] {
  const { noStore } = lifetimeOf(set);
  const isPrivate = parseCacheControl(field(set, "cache-control") ?? "").has("private");
  const notes =
    isPrivate && !noStore ? [note("HTTP_PRIVATE", `Cache-Control: ${quoted(field(set, "cache-control"))}`)] : [];
  const varies = field(set, "vary");
  return varies?.split(",").some((name) => name.trim() === "*") === true
    ? [...notes, note("HTTP_VARY_ANY", "Vary: *")]
    : notes;
}

function checkValidators(set: HttpExchange, { again, revalidate, weak, foreign }: Probes): Note[] {
  const notes: Note[] = [];
  const etag = field(set, "etag");
  if (etag === undefined) return notes;
  if (!/^(W\/)?"[^"]*"$/.test(etag)) notes.push(note("HTTP_ETAG_UNQUOTED", quoted(etag)));
  else if (etag.startsWith("W/")) notes.push(note("HTTP_ETAG_WEAK", quoted(etag)));
  const nextTag = again === undefined ? undefined : field(again, "etag");
  if (nextTag !== undefined && nextTag !== etag && sameBytes(again?.body, set.body)) {
    notes.push(note("HTTP_ETAG_CHANGES", `${quoted(etag)}, then ${quoted(nextTag)}`));
  } else if (revalidate?.status === 200 && field(revalidate, "etag") === etag) {
    notes.push(note("HTTP_NO_304", `status 200 for If-None-Match: ${quoted(etag)}`));
  }
  if (revalidate?.status === 304) notes.push(...check304(set, revalidate));
  if (foreign?.status === 304)
    notes.push(note("HTTP_304_FOREIGN", "status 304 for an ETag that the server never sent"));
  for (const [tag, probe] of Object.entries({
    "the ETag": revalidate,
    "a weak ETag": weak,
    "a different ETag": foreign,
  })) {
    const status = probe?.status ?? 200;
    // 429 and 503 are temporary.
    if ([200, 304, 429, 503].includes(status)) continue;
    notes.push(note("HTTP_CONDITIONAL_STATUS", `status ${status} for If-None-Match with ${tag}`));
  }
  return notes;
}

function check304(set: HttpExchange, revalidate: HttpExchange): Note[] {
  const lacking = ["cache-control", "etag", "expires", "vary"].filter(
    (name) => field(set, name) !== undefined && field(revalidate, name) === undefined,
  );
  const other = field(revalidate, "etag");
  const notes = lacking.length === 0 ? [] : [note("HTTP_304_HEADERS", `no ${lacking.join(", no ")}`)];
  if (other === undefined || other === field(set, "etag")) return notes;
  return [...notes, note("HTTP_304_HEADERS", `ETag ${quoted(other)} instead of ${quoted(field(set, "etag"))}`)];
}
