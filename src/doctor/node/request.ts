import type { IncomingMessage } from "node:http";
import { request as requestHttps } from "node:https";
import { lookup } from "node:dns/promises";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { brotliDecompressSync, gunzipSync, inflateSync } from "node:zlib";
import { withDeadline } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import type { Optional, Given } from "../../base/options.ts";
import { isOwnNetworkAddress, isPublicAddress } from "../../node/addresses.ts";
import { addressesOf, limitInformational, lookupOf } from "../../node/outgoing.ts";
import type { Address } from "../../node/host-addresses.ts";
import type { Exchange, Failure } from "../observations.ts";
import { counted } from "../format.ts";

// An import of node:http loads undici as well, which takes longer than all that the doctor needs.
const { request: requestHttp } = process.getBuiltinModule("node:http");

/** Options of `observe`. */
export interface ObserveOptions {
  /** Time for one response, from the look-up of the host to the last byte, in milliseconds. Default: 10000. */
  readonly timeoutMs?: Optional<number>;
  /** Largest body, in bytes. Default: 1000000. */
  readonly maxBytes?: Optional<number>;
  /** After this time no request is started, in milliseconds. Default: 60000. */
  readonly totalMs?: Optional<number>;
  /** Allows http, and hosts at private and loopback addresses. Default: `false`. */
  readonly allowInsecure?: Optional<boolean>;
  /** Aborts the requests. Default: none. */
  readonly signal?: Optional<AbortSignal>;
  /** Certificates to trust, as PEM. Default: those of the system. */
  readonly ca?: Optional<string>;
  /** Finds all addresses of a host name. Default: the resolver of the system. */
  readonly resolve?: Optional<(host: string) => Promise<readonly Address[]>>;
}

/** What every request is held to. */
export interface RequestLimits extends Given<ObserveOptions> {
  readonly timeoutMs: number;
  readonly maxBytes: number;
  /** Requests in all. */
  readonly maxRequests: number;
  readonly totalMs: number;
  readonly allowInsecure: boolean;
}

export interface Ask {
  readonly method?: "GET" | "HEAD";
  readonly headers?: Readonly<Record<string, string | undefined>>;
  /** Connect only to addresses of this family. */
  readonly family?: 4 | 6;
}

/** Sends one request and follows redirects. Never rejects for lack of a response: the exchange has the failure. */
export type Requester = (url: string, ask?: Ask) => Promise<Exchange>;

const maxRedirects = 5;
const usual = { "user-agent": "jwksd-doctor", accept: "application/jwk-set+json, application/json;q=0.9, */*;q=0.1" };

class Failed extends Error {
  readonly failure: Failure;

  constructor(kind: Failure["kind"], detail: string) {
    super(detail);
    this.failure = { kind, detail };
  }
}

/** Makes a requester, which sends GET and HEAD only. The limits hold for all its requests together. */
export function requester(limits: RequestLimits): Requester {
  const endsAt = performance.now() + limits.totalMs;
  let requests = 0;
  return async (url, ask = {}) => {
    const redirects: string[] = [];
    let target = url;
    for (;;) {
      requests += 1;
      const found = redirects.length === 0 ? {} : { redirects };
      if (requests > limits.maxRequests) return failed(target, found, "limit", "the requests of one look are used up");
      if (performance.now() > endsAt) return failed(target, found, "limit", "the time of one look is used up");
      const exchange = { ...(await once(target, ask, limits)), ...found };
      const next = redirectOf(exchange, target);
      if (next === undefined) return exchange;
      if (redirects.length === maxRedirects) {
        return failed(target, found, "redirects", `there are more than ${maxRedirects} redirects`);
      }
      redirects.push(target);
      target = next;
    }
  };
}

const failed = (url: string, more: Partial<Exchange>, kind: Failure["kind"], detail: string): Exchange => ({
  url,
  ...more,
  failure: { kind, detail },
});

function redirectOf({ status = 0, headers = [] }: Exchange, base: string): string | undefined {
  const location = headers.find(([name]) => name === "location")?.[1];
  if (![301, 302, 303, 307, 308].includes(status) || location === undefined || !URL.canParse(location, base)) {
    return undefined;
  }
  return new URL(location, base).href;
}

/** One request. Its deadline holds for the whole exchange, whatever the server says in it. */
async function once(url: string, ask: Ask, limits: RequestLimits): Promise<Exchange> {
  const { timeoutMs, signal } = limits;
  const expired = (): Failed => new Failed("timeout", `there is no whole response within ${timeoutMs / 1000} s`);
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
    return { url, failure: error instanceof Failed ? error.failure : failureOf(error) };
  }
}

/** The addresses of the host, all of which may be connected to. */
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

/** All addresses of the host of a URL. */
export function hostAddresses(hostname: string, { resolve }: RequestLimits): Promise<readonly Address[]> {
  return addressesOf(hostname, resolve ?? ((host) => lookup(host, { all: true, verbatim: true })));
}

function send(
  url: string,
  { method = "GET", headers = {} }: Ask,
  addresses: readonly Address[],
  signal: AbortSignal,
  { ca, maxBytes }: RequestLimits,
): Promise<Exchange> {
  return new Promise((resolve, reject) => {
    const request = url.startsWith("https:") ? requestHttps : requestHttp;
    const fields = Object.entries({ ...usual, "accept-encoding": "identity", ...headers });
    const outgoing = request(url, {
      method,
      // A pooled connection may lead to an unchecked address.
      agent: false,
      signal,
      headers: Object.fromEntries(fields.filter((field): field is [string, string] => field[1] !== undefined)),
      ...(ca !== undefined && { ca }),
      lookup: lookupOf(addresses),
    });
    let connectedAt = performance.now();
    const connected = (): void => void (connectedAt = performance.now());
    outgoing.on("socket", (socket) => socket.once("connect", connected).once("secureConnect", connected));
    limitInformational(outgoing, () => new Failed("protocol", "there are only informational responses"));
    outgoing.on("error", reject);
    // Without a listener, Node closes the connection, and neither a response nor an error follows.
    outgoing.once("upgrade", ({ statusCode }: IncomingMessage, socket: Socket) => {
      socket.destroy();
      reject(new Failed("protocol", `status ${statusCode}, which nobody asked for`));
    });
    outgoing.once("response", (incoming) => {
      const waitMs = performance.now() - connectedAt;
      receive(incoming, method, maxBytes).then((received) => resolve({ url, waitMs, ...received }), reject);
    });
    outgoing.end();
  });
}

const incomplete = (detail: string): Pick<Exchange, "failure"> => ({ failure: { kind: "incomplete", detail } });

async function receive(incoming: IncomingMessage, method: "GET" | "HEAD", maxBytes: number): Promise<Exchange> {
  const { rawHeaders, statusCode = 0, socket } = incoming;
  const notAfter = Date.parse(
    ("getPeerCertificate" in socket && (socket as TLSSocket).getPeerCertificate().valid_to) || "",
  );
  const head: Exchange = {
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
    for await (const chunk of incoming as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > maxBytes) {
        incoming.destroy();
        return { ...head, ...tooLarge };
      }
      chunks.push(chunk);
    }
  } catch {
    // After the end of the deadline, too, but then nobody reads this.
    return { ...head, ...incomplete(`the body ends after ${counted(size, "byte")}, before its end is due`) };
  }
  if (method === "HEAD" || statusCode === 304) return head;
  try {
    return { ...head, body: decoded(Buffer.concat(chunks), incoming.headers["content-encoding"], maxBytes) };
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

function decoded(body: Buffer, encoding: string | undefined, maxOutputLength: number): Buffer {
  if (encoding === "gzip") return gunzipSync(body, { maxOutputLength });
  if (encoding === "br") return brotliDecompressSync(body, { maxOutputLength });
  return encoding === "deflate" ? inflateSync(body, { maxOutputLength }) : body;
}

/** Classifies an error of the platform. */
function failureOf(error: unknown): Failure {
  const { code } = Object(error) as { code?: unknown };
  const detail = typeof code === "string" && /^\w{1,64}$/.test(code) ? code : "no response";
  if (/^(CERT|UNABLE_TO|DEPTH_ZERO|SELF_SIGNED|ERR_(TLS|SSL)|EPROTO|HOSTNAME_MISMATCH|INVALID_CA)/.test(detail)) {
    return { kind: "tls", detail };
  }
  return { kind: detail.startsWith("HPE_") ? "protocol" : "unreachable", detail };
}
