import { isLoopbackUrl } from "../../base/urls.ts";
import { type Note, note } from "../finding.ts";
import { entriesIn, readJson } from "../lenient-json.ts";
import type { HttpExchange, Observations, Probes } from "../observations.ts";
import { failureText, field, probeOrigin, sameBytes, statusText, wayOf } from "../read-exchange.ts";
import { counted, quoted, urlText } from "../value-text.ts";
import { checkCaching } from "./caching.ts";

const maxBytes = 51_200;
const slowMs = 250;
const tooSlowMs = 500;
/** Too Many Requests. This status says nothing about the requested document. */
const tooMany = 429;

/** Checks how the documents are served over HTTP. */
export function checkHttp({ discovery, set, probes = {} }: Observations): Note[] {
  const first = discovery ?? set;
  const notes = [discovery, set].flatMap((exchange) => checkWay(exchange));
  if (first?.url !== undefined && first.url.startsWith("http:") && !isLoopbackUrl(first.url)) {
    notes.push(note("HTTP_PLAIN", urlText(first.url)));
  }
  if (set === undefined) return notes;
  notes.push(...checkFailure(set, discovery?.body !== undefined), ...checkStatus(set, probes, discovery !== undefined));
  const served = set.status === 200 ? set : probes.browser;
  if (served?.status !== 200 || served.body === undefined) return notes;
  return [...notes, ...checkBody(served), ...checkCaching(served, probes), ...checkProbes(served, probes)];
}

/** Checks redirects and TLS. */
function checkWay(exchange: HttpExchange | undefined): Note[] {
  const { redirects = [], url, failure } = exchange ?? {};
  const notes = [];
  if (redirects.length > 0) {
    const limit = failure?.kind === "redirects" ? `, and ${failure.detail}` : "";
    notes.push(note("HTTP_REDIRECT", `${wayOf(exchange ?? {})}${limit}`));
  }
  if (failure?.kind === "tls" && url !== undefined)
    notes.push(note("TLS_INVALID", `${urlText(url)}: ${failureText(failure)}`));
  if (failure?.kind === "incomplete" && url !== undefined)
    notes.push(note("HTTP_INCOMPLETE", `${urlText(url)}: ${failure.detail}`));
  return notes;
}

/**
 * Checks failures and exceeded limits. An unreachable set is a finding only if the discovery document was reachable.
 */
function checkFailure({ failure }: HttpExchange, hasDiscovery: boolean): Note[] {
  if (failure === undefined) return [];
  const { kind, detail } = failure;
  if (kind === "timeout" || kind === "limit") return [note("HTTP_TIMEOUT", detail)];
  if (kind === "too-large") return [note("HTTP_TOO_LARGE", detail)];
  if (kind === "protocol") return [note("HTTP_STATUS", detail)];
  return kind === "unreachable" && hasDiscovery ? [note("HTTP_STATUS", `no connection (${detail})`)] : [];
}

const isRefused = (exchange: HttpExchange | undefined): boolean => exchange?.status === 401 || exchange?.status === 403;

/**
 * Checks the status that programs and browsers receive.
 *
 * @param isAdvertised whether a discovery document names the URL
 */
function checkStatus(set: HttpExchange, { noAgent, browser }: Probes, isAdvertised: boolean): Note[] {
  const { status } = set;
  if (isRefused(set) && browser?.status === 200) {
    return [note("HTTP_USER_AGENT", `${statusText(set)} for jwksd-doctor, but 200 for a browser`)];
  }
  if (status === 200 && isRefused(noAgent)) {
    return [note("HTTP_USER_AGENT", `status ${noAgent?.status} without User-Agent`)];
  }
  if (status === undefined || status === 200) return [];
  if (isAdvertised && (status === 404 || status === 410))
    return [note("DISCOVERY_JWKS_URI_NOT_FOUND", `${wayOf(set)}: ${statusText(set)}`)];
  const retry = field(set, "retry-after");
  return [note("HTTP_STATUS", `${statusText(set)}${retry === undefined ? "" : `, Retry-After: ${quoted(retry)}`}`)];
}

/** Checks the Content-Type of a response. */
export function checkMediaType(
  exchange: HttpExchange,
  accepted: readonly string[],
  code: "HTTP_MEDIA_TYPE" | "DISCOVERY_MEDIA_TYPE",
): Note[] {
  const type = field(exchange, "content-type");
  if (accepted.includes(type?.split(";")[0]?.trim().toLowerCase() ?? "")) return [];
  return [note(code, type === undefined ? "no Content-Type" : quoted(type))];
}

function checkBody(set: HttpExchange): Note[] {
  const notes = checkMediaType(set, ["application/jwk-set+json", "application/json"], "HTTP_MEDIA_TYPE");
  const bytes = set.body?.length ?? 0;
  if (bytes > maxBytes) notes.push(note("HTTP_TOO_LARGE", counted(bytes, "byte")));
  const encoding = field(set, "content-encoding") ?? "identity";
  if (encoding !== "identity") notes.push(note("HTTP_GZIP_UNASKED", `Content-Encoding: ${quoted(encoding)}`));
  if (field(set, "content-length") === undefined) notes.push(note("HTTP_CHUNKED", "no Content-Length"));
  if (field(set, "set-cookie") !== undefined) notes.push(note("HTTP_SET_COOKIE", "Set-Cookie"));
  return notes;
}

function checkProbes(set: HttpExchange, probes: Probes): Note[] {
  const notes: Note[] = [];
  const { head, json, origin, gzip, ipv4, ipv6 } = probes;
  const limited = Object.values(probes).filter(({ status }) => status === tooMany).length;
  if (limited > 0) {
    notes.push(note("HTTP_RATE_LIMIT", `${limited} of the ${Object.keys(probes).length + 1} requests`));
  }
  const isComparable = head !== undefined && head.failure?.kind !== "limit" && head.status !== tooMany;
  if (isComparable && !isSameHead(set, head)) {
    const difference = head.status === 200 ? "200 with other headers" : (head.status ?? head.failure?.detail);
    notes.push(note("HTTP_HEAD", `status ${difference}`));
  }
  const { status: jsonStatus = 200 } = json ?? {};
  if (jsonStatus >= 400 && jsonStatus < 500 && jsonStatus !== tooMany)
    notes.push(note("HTTP_NOT_ACCEPTABLE", `status ${jsonStatus}`));
  if (origin?.status === 200) notes.push(...checkCors(origin));
  if (gzip !== undefined && (field(gzip, "content-encoding") ?? "identity") !== "identity") {
    const varies = (field(gzip, "vary") ?? "").toLowerCase();
    if (!/(^|[\s,])(accept-encoding|\*)($|[\s,])/.test(varies)) {
      notes.push(note("HTTP_COMPRESSED_NO_VARY", `Content-Encoding: ${quoted(field(gzip, "content-encoding"))}`));
    }
  }
  if (ipv4 !== undefined && ipv6 !== undefined) notes.push(...checkFamilies(ipv4, ipv6));
  return [...notes, ...checkSpeed([set, ...Object.values(probes)])];
}

function checkFamilies(ipv4: HttpExchange, ipv6: HttpExchange): Note[] {
  if ([ipv4, ipv6].some(({ status }) => status === undefined || status === tooMany)) return [];
  if (ipv4.body !== undefined && ipv6.body !== undefined && !isSameSet(ipv4.body, ipv6.body)) {
    return [note("HTTP_ADDRESSES_DIFFER", "the bodies differ")];
  }
  if (ipv4.status === ipv6.status) return [];
  return [note("HTTP_ADDRESSES_DIFFER", `status ${ipv4.status} over IPv4, ${ipv6.status} over IPv6`)];
}

function checkCors(response: HttpExchange): Note[] {
  const allowed = field(response, "access-control-allow-origin");
  if (allowed === undefined) return [note("HTTP_NO_CORS", "no Access-Control-Allow-Origin")];
  if (allowed === "*" || allowed === probeOrigin) return [];
  return [note("HTTP_NO_CORS", `Access-Control-Allow-Origin: ${quoted(allowed)}`)];
}

const isSameHead = (set: HttpExchange, head: HttpExchange): boolean =>
  head.status === set.status &&
  ["content-type", "cache-control"].every(
    (name) => (field(set, name) === undefined) === (field(head, name) === undefined),
  );

/** Reports whether two bodies have the same keys, in any order. */
function isSameSet(one: Uint8Array, other: Uint8Array): boolean {
  if (sameBytes(one, other)) return true;
  const [keys, others] = [one, other].map((body) =>
    entriesIn(readJson(body, "").value)
      ?.map((key) => JSON.stringify(key))
      .sort()
      .join("\n"),
  );
  return keys !== undefined && keys === others;
}

function checkSpeed(exchanges: readonly HttpExchange[]): Note[] {
  const waits = exchanges.flatMap(({ waitMs }) => waitMs ?? []).sort((a, b) => a - b);
  // Uses the median, because this machine may have caused a single slow response.
  const median = waits[(waits.length - 1) >> 1] ?? 0;
  if (median <= slowMs) return [];
  return [
    note(
      median > tooSlowMs ? "HTTP_SLOW_500" : "HTTP_SLOW_250",
      `${Math.round(median)} ms, the median of ${counted(waits.length, "response time")}`,
    ),
  ];
}
