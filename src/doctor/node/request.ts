import { lookup } from "node:dns/promises";
import type { IncomingMessage } from "node:http";
import { request as requestHttps } from "node:https";
import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import { brotliDecompressSync, gunzipSync, inflateSync } from "node:zlib";
import { withDeadline } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import type { Optional, Given } from "../../base/options.ts";
import type { Address } from "../../node/dns-lookup.ts";
import { addressesOf, limitInformational, lookupOf } from "../../node/pinned-addresses.ts";
import { isOwnNetworkAddress, isPublicAddress } from "../../node/public-addresses.ts";
import type { HttpExchange, Failure } from "../observations.ts";
import { counted } from "../value-text.ts";

// Importing node:http would also load undici, which takes longer than loading everything that the doctor needs.
const { request: requestHttp } = process.getBuiltinModule("node:http");

/** Options for `observeIssuer`. */
export interface ObserveOptions {
  /** Time limit for one response, from the DNS lookup to the last byte, in milliseconds. Default: 10000. */
  readonly timeoutMs?: Optional<number>;
  /** Whether http URLs and hosts at private and loopback addresses are allowed. Default: `false`. */
  readonly allowInsecure?: Optional<boolean>;
  /** Signal that aborts the requests. Default: none. */
  readonly signal?: Optional<AbortSignal>;
  /** Trusted certificates, as PEM. Default: the system's certificates. */
  readonly ca?: Optional<string>;
  /** Returns all addresses of a host name. Default: the system's resolver. */
  readonly resolve?: Optional<(host: string) => Promise<readonly Address[]>>;
}

/** Limits that apply to each request. */
export interface RequestLimits extends Given<ObserveOptions> {
  readonly timeoutMs: number;
  /** Time after which no new request is started, in milliseconds. */
  readonly totalMs: number;
  readonly allowInsecure: boolean;
}

export interface Ask {
  readonly method?: "GET" | "HEAD";
  readonly headers?: Readonly<Record<string, string | undefined>>;
  /** The only address family to connect to. */
  readonly family?: 4 | 6;
}

/**
 * Sends one request and follows redirects. If there is no response, the promise is not rejected; the exchange contains
 * the failure.
 */
export type Requester = (url: string, ask?: Ask) => Promise<HttpExchange>;

const maxRequests = 30;
const maxRedirects = 5;
/** Maximum size of a body, in bytes. */
const maxBytes = 1_000_000;
const usual = { "user-agent": "jwksd-doctor", accept: "application/jwk-set+json, application/json;q=0.9, */*;q=0.1" };

class Failed extends Error {
  readonly failure: Failure;

  constructor(kind: Failure["kind"], detail: string) {
    super(detail);
    this.failure = { kind, detail };
  }
}

/** Creates a requester, which sends only GET and HEAD requests. The limits apply to all of its requests together. */
export function requester(limits: RequestLimits): Requester {
  const endsAt = performance.now() + limits.totalMs;
  let requests = 0;
  return async (url, ask = {}) => {
    const redirects: string[] = [];
    let target = url;
    for (;;) {
      requests += 1;
      const found = redirects.length === 0 ? {} : { redirects };
      if (requests > maxRequests)
        return failed(target, found, "limit", "the limit on the number of requests was reached");
      if (performance.now() > endsAt)
        return failed(target, found, "limit", "the time limit for all requests was reached");
      const exchange = { ...(await once(target, ask, limits)), ...found };
      const next = redirectOf(exchange, target);
      if (next === undefined) return exchange;
      if (redirects.length === maxRedirects) {
        return failed(target, found, "redirects", `it redirects more than ${maxRedirects} times`);
      }
      redirects.push(target);
      target = next;
    }
  };
}

const failed = (url: string, more: Partial<HttpExchange>, kind: Failure["kind"], detail: string): HttpExchange => ({
  url,
  ...more,
  failure: { kind, detail },
});

function redirectOf({ status = 0, headers = [] }: HttpExchange, base: string): string | undefined {
  const location = headers.find(([name]) => name === "location")?.[1];
  if (![301, 302, 303, 307, 308].includes(status) || location === undefined || !URL.canParse(location, base)) {
    return undefined;
  }
  return new URL(location, base).href;
}

/** Sends one request. The deadline applies to the whole exchange, however slowly the server sends its response. */
async function once(url: string, ask: Ask, limits: RequestLimits): Promise<HttpExchange> {
  const { timeoutMs, signal } = limits;
  const expired = (): Failed => new Failed("timeout", `no complete response arrived within ${timeoutMs / 1000} s`);
  try {
    return await withDeadline(
      async (ending) => {
        const addresses = await checkedAddresses(url, ask.family, limits);
        ending.throwIfAborted();
        return send(url, ask, addresses, ending, limits);
      },
      { clock: systemClock, timeoutMs, signal, expired },
    );
  } catch (error) {
    if (signal?.aborted === true) throw signal.reason;
    return { url, failure: error instanceof Failed ? error.failure : connectionFailure(error) };
  }
}

/** Returns the host's addresses after checking all of them. */
async function checkedAddresses(url: string, family: 4 | 6 | undefined, limits: RequestLimits) {
  const { protocol, hostname } = new URL(url);
  if (protocol !== "https:" && !(protocol === "http:" && limits.allowInsecure)) {
    throw new Failed("forbidden-url", "it is not an https URL");
  }
  const addresses = (await hostAddresses(hostname, limits)).filter(
    (address) => (family ?? address.family) === address.family,
  );
  if (addresses.length === 0) throw new Failed("unreachable", "ENOTFOUND");
  if (
    !addresses.every(
      ({ address }) => isPublicAddress(address) || (limits.allowInsecure && isOwnNetworkAddress(address)),
    )
  ) {
    throw new Failed("forbidden-address", "its host is at an address that is not public");
  }
  return addresses;
}

/** Returns all addresses of a host. */
export function hostAddresses(hostname: string, { resolve }: RequestLimits): Promise<readonly Address[]> {
  return addressesOf(hostname, resolve ?? ((host) => lookup(host, { all: true, verbatim: true })));
}

function send(
  url: string,
  { method = "GET", headers = {} }: Ask,
  addresses: readonly Address[],
  signal: AbortSignal,
  { ca }: RequestLimits,
): Promise<HttpExchange> {
  return new Promise((resolve, reject) => {
    const request = url.startsWith("https:") ? requestHttps : requestHttp;
    const fields = Object.entries({ ...usual, "accept-encoding": "identity", ...headers });
    const outgoing = request(url, {
      method,
      // A pooled connection could be to an unchecked address.
      agent: false,
      signal,
      headers: Object.fromEntries(fields.filter((field): field is [string, string] => field[1] !== undefined)),
      ...(ca !== undefined && { ca }),
      lookup: lookupOf(addresses),
    });
    let connectedAt = performance.now();
    const connected = (): void => void (connectedAt = performance.now());
    outgoing.on("socket", (socket) => socket.once("connect", connected).once("secureConnect", connected));
    limitInformational(outgoing, () => new Failed("protocol", "it sends only informational responses"));
    outgoing.on("error", reject);
    // Without this listener, Node would close the connection, and neither a response nor an error would follow.
    outgoing.once("upgrade", ({ statusCode }: IncomingMessage, socket: Socket) => {
      socket.destroy();
      reject(new Failed("protocol", `status ${statusCode}, which the request did not ask for`));
    });
    outgoing.once("response", (incoming) => {
      const waitMs = performance.now() - connectedAt;
      receive(incoming, method).then((received) => resolve({ url, waitMs, ...received }), reject);
    });
    outgoing.end();
  });
}

const incomplete = (detail: string): Pick<HttpExchange, "failure"> => ({ failure: { kind: "incomplete", detail } });

async function receive(incoming: IncomingMessage, method: "GET" | "HEAD"): Promise<HttpExchange> {
  const { rawHeaders, statusCode = 0, socket } = incoming;
  const notAfter = Date.parse((socket instanceof TLSSocket && socket.getPeerCertificate().valid_to) || "");
  const head: HttpExchange = {
    status: statusCode,
    headers: pairs(rawHeaders),
    ...(!Number.isNaN(notAfter) && { tls: { notAfter } }),
  };
  const chunks: Buffer[] = [];
  let size = 0;
  const tooLarge = {
    failure: { kind: "too-large", detail: `it is larger than ${maxBytes.toLocaleString("en")} bytes` },
  } as const;
  try {
    // If no encoding is set, the chunks are buffers, although their type is any.
    for await (const chunk of incoming as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > maxBytes) {
        incoming.destroy();
        return { ...head, ...tooLarge };
      }
      chunks.push(chunk);
    }
  } catch {
    // Also reached at the deadline, but then the result is not used.
    return { ...head, ...incomplete(`the body ends early, after ${counted(size, "byte")}`) };
  }
  if (method === "HEAD" || statusCode === 304) return head;
  try {
    return { ...head, body: decodeContent(Buffer.concat(chunks), incoming.headers["content-encoding"]) };
  } catch (error) {
    return {
      ...head,
      ...(error instanceof RangeError ? tooLarge : incomplete("the compressed body is damaged")),
    };
  }
}

function pairs(raw: readonly string[]): (readonly [string, string])[] {
  return Array.from({ length: raw.length / 2 }, (_, index) => {
    const [name = "", value = ""] = [raw[2 * index], raw[2 * index + 1]];
    return [name.toLowerCase(), value] as const;
  });
}

function decodeContent(body: Buffer, encoding: string | undefined): Buffer {
  const bounds = { maxOutputLength: maxBytes };
  if (encoding === "gzip") return gunzipSync(body, bounds);
  if (encoding === "br") return brotliDecompressSync(body, bounds);
  return encoding === "deflate" ? inflateSync(body, bounds) : body;
}

/** Classifies an error from a connection. */
function connectionFailure(error: unknown): Failure {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  const detail = typeof code === "string" && /^\w{1,64}$/.test(code) ? code : "no response";
  if (/^(CERT|UNABLE_TO|DEPTH_ZERO|SELF_SIGNED|ERR_(TLS|SSL)|EPROTO|HOSTNAME_MISMATCH|INVALID_CA)/.test(detail)) {
    return { kind: "tls", detail };
  }
  return { kind: detail.startsWith("HPE_") ? "protocol" : "unreachable", detail };
}
