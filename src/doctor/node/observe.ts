import { FetchError } from "../../base/errors.ts";
import { memberOf } from "../../base/json.ts";
import { type Rules, anything, boolean, callback, checkOptions, nonEmptyString, timeout } from "../../base/options.ts";
import { discoveryUrl, metadataPart, wellKnownUrl } from "../../base/urls.ts";
import { readJson } from "../lenient-json.ts";
import type { HttpExchange, Observations, Probes } from "../observations.ts";
import { field, probeOrigin, sameBytes, setResponse } from "../read-exchange.ts";
import { urlText } from "../value-text.ts";
import { type ObserveOptions, type RequestLimits, type Requester, hostAddresses, requester } from "./request.ts";
import { readCertificates } from "./x5c-certificates.ts";

const rules: Rules<ObserveOptions> = {
  timeoutMs: timeout,
  allowInsecure: boolean,
  signal: anything,
  ca: nonEmptyString,
  resolve: callback,
};

const defaults: RequestLimits = { timeoutMs: 10_000, totalMs: 60_000, allowInsecure: false };
/** An ETag that no server sends. */
const foreignTag = '"jwksd-doctor-made-this-up"';
const browserAgent =
  "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36";

const limitsOf = (options: ObserveOptions): RequestLimits => Object.assign({}, defaults, checkOptions(options, rules));

/**
 * Observes an issuer, a discovery document or a JWK Set for `examine`. Sends at most 30 requests within a minute, using
 * only GET and HEAD. Connects only to https URLs and public addresses, unless `allowInsecure` is set.
 *
 * @example
 * ```ts
 * for (const finding of await examine(await observeIssuer("https://login.example.com"))) console.log(finding.code, finding.remedy);
 * ```
 *
 * @param target the URL that relying parties use
 * @throws FetchError `ERR_URL_INSECURE`, `ERR_ADDRESS_FORBIDDEN`, `ERR_FETCH_FAILED` if there is nothing to observe
 */
export async function observeIssuer(target: string, options: ObserveOptions = {}): Promise<Observations> {
  const limits = limitsOf(options);
  const at = Date.now();
  if (!URL.canParse(target)) throw new FetchError("ERR_URL_INSECURE", "this is not a URL");
  const { username, password } = new URL(target);
  if (username !== "" || password !== "")
    throw new FetchError("ERR_URL_INSECURE", "the URL contains a user name or password; remove it");
  const request = requester(limits);
  const found = await find(target, request);
  const uri = jwksUriOf(found.discovery);
  const set = found.set ?? (uri === undefined ? undefined : await request(uri));
  const probes = set === undefined ? undefined : await probe(set, request, limits);
  const metadata = await metadataOf(found, request);
  const seen = { ...found, ...(metadata && { metadata }), ...(set && { set }), ...(probes && { probes }) };
  const body = setResponse(seen)?.body;
  return { at, ...seen, certificates: body === undefined ? {} : readCertificates(readJson(body, "").value) };
}

/** Observes a file's content or a fetched body. @param at time at which it was read, in epoch milliseconds */
export function observationsFromBody(body: Uint8Array, at: number): Observations {
  const { value } = readJson(body, "");
  if (isMetadata(value)) return { at, discovery: { body } };
  return { at, set: { body }, certificates: readCertificates(value) };
}

type Found = Pick<Observations, "issuer" | "discovery" | "set">;

/**
 * Determines whether a URL is an issuer, a discovery document or a JWK Set. A document at the URL itself takes
 * precedence.
 */
async function find(target: string, request: Requester): Promise<Found> {
  if (metadataPart.test(target)) return { discovery: reached(await request(target)) };
  const isBare = ["", "/"].includes(new URL(target).pathname);
  // A web page is often served at the issuer's own URL.
  let direct = isBare ? undefined : reached(await request(target));
  const found = direct && documentAt(direct);
  if (found !== undefined) return found;
  const discovery = reached(await request(discoveryUrl(target)));
  if (isMetadata(jsonIn(discovery))) return { issuer: target, discovery };
  direct ??= reached(await request(target));
  return documentAt(direct) ?? (isSetUrl(target, direct) ? { set: direct } : { issuer: target, discovery });
}

/**
 * Requests the other metadata URLs. Skips them if the issuer has no endpoints for logins or tokens, because only
 * clients of those endpoints use the URLs.
 */
async function metadataOf({ issuer, discovery }: Found, request: Requester): Promise<HttpExchange[] | undefined> {
  const document = discovery && jsonIn(discovery);
  const endpoint = memberOf(document, "authorization_endpoint") ?? memberOf(document, "token_endpoint");
  if (issuer === undefined || endpoint === undefined) return undefined;
  const exchanges: HttpExchange[] = [];
  for (const url of oauthUrls(issuer)) exchanges.push(await request(url));
  return exchanges;
}

function documentAt(exchange: HttpExchange): Found | undefined {
  const value = jsonIn(exchange);
  if (memberOf(value, "keys") !== undefined) return { set: exchange };
  return isMetadata(value) ? { discovery: exchange } : undefined;
}

/**
 * Guesses whether a URL that returned neither a discovery document nor a JWK Set was meant to serve a JWK Set, based on
 * the end of the URL's path or on the response.
 */
function isSetUrl(target: string, { status, headers }: HttpExchange): boolean {
  const last = new URL(target).pathname.split("/").at(-1) ?? "";
  if (/jwk|keys|certs|\.json$/i.test(last)) return true;
  const isPage = /^\s*text\/html/i.test(field({ headers: headers ?? [] }, "content-type") ?? "");
  return last !== "" && status === 200 && !isPage;
}

/**
 * Returns the URLs at which OAuth clients request an issuer's metadata, in addition to the discovery document's URL.
 * @see RFC 8414 sections 3.1 and 5
 */
function oauthUrls(issuer: string): string[] {
  const urls = (["oauth-authorization-server", "openid-configuration"] as const).map((name) =>
    wellKnownUrl(issuer, name),
  );
  return urls.filter((url) => url !== discoveryUrl(issuer));
}

/** Returns the exchange, or throws if there was no response. @throws FetchError */
function reached(exchange: HttpExchange): HttpExchange {
  const { failure, url = "" } = exchange;
  if (failure?.kind === "forbidden-url" || failure?.kind === "forbidden-address") {
    const code = failure.kind === "forbidden-url" ? "ERR_URL_INSECURE" : "ERR_ADDRESS_FORBIDDEN";
    throw new FetchError(code, `${urlText(url)}: ${failure.detail}; set allowInsecure to check it anyway`);
  }
  if (failure?.kind === "unreachable") {
    throw new FetchError("ERR_FETCH_FAILED", `${urlText(url)}: no connection (${failure.detail})`);
  }
  return exchange;
}

/** Returns the JSON in a response with status 200, or `undefined` if there is none. */
function jsonIn({ status, body }: HttpExchange): unknown {
  return status === 200 && body !== undefined ? readJson(body, "").value : undefined;
}

/** Reports whether a value looks like a discovery document rather than a JWK Set. */
function isMetadata(value: unknown): boolean {
  const address = memberOf(value, "jwks_uri") ?? memberOf(value, "issuer");
  return memberOf(value, "keys") === undefined && address !== undefined;
}

function jwksUriOf(discovery: HttpExchange | undefined): string | undefined {
  const uri = discovery && memberOf(jsonIn(discovery), "jwks_uri");
  return typeof uri === "string" && URL.canParse(uri) ? uri : undefined;
}

/** Requests the set the way verifiers, caches and browsers do. */
async function probe(set: HttpExchange, request: Requester, limits: RequestLimits): Promise<Probes> {
  const { url = "", status, body } = set;
  const ask = async (headers: Readonly<Record<string, string | undefined>>): Promise<HttpExchange> => {
    const response = await request(url, { headers });
    // Shares equal bodies; otherwise, twelve copies of a large body would stay in memory.
    return body !== undefined && sameBytes(response.body, body) ? { ...response, body } : response;
  };
  const browser = { "user-agent": browserAgent };
  if (status === 401 || status === 403) return { browser: await ask(browser) };
  if (status !== 200 || body === undefined) return {};
  const etag = field(set, "etag");
  const validators =
    etag === undefined
      ? {}
      : {
          revalidate: await ask({ "if-none-match": etag }),
          weak: await ask({ "if-none-match": `W/${etag.replace(/^W\//, "")}` }),
          foreign: await ask({ "if-none-match": foreignTag }),
        };
  return {
    again: await ask({}),
    head: await request(url, { method: "HEAD" }),
    ...validators,
    json: await ask({ accept: "application/json" }),
    origin: await ask({ origin: probeOrigin }),
    noAgent: await ask({ "user-agent": undefined }),
    gzip: await ask({ "accept-encoding": "gzip" }),
    ...(await overBothFamilies(url, request, limits)),
  };
}

async function overBothFamilies(url: string, request: Requester, limits: RequestLimits): Promise<Probes> {
  const addresses = await hostAddresses(new URL(url).hostname, limits).catch(() => []);
  if (new Set(addresses.map(({ family }) => family)).size < 2) return {};
  return { ipv4: await request(url, { family: 4 }), ipv6: await request(url, { family: 6 }) };
}

/** Returns a function that refetches the JWK Set as a verifier does. */
export function asking(url: string, options: ObserveOptions = {}): () => Promise<HttpExchange> {
  // Each call has its own limits.
  return () => requester(limitsOf(options))(url);
}
