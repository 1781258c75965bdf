import { join } from "node:path";
import type { TestContext } from "node:test";
import { audience } from "../bearer/guards.ts";
import { type TestProviders, startProviders } from "../bearer/provider.ts";
import { accessToken } from "../bearer/requests.ts";
import { type GuardHere, startGuardHere } from "../guard/running.ts";
import { freePort, temporaryFolder } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import { type HeaderLine, type WireRequest, exchange, requestText } from "../support/wire.ts";
import { type Backend, type Seen, backends } from "./backends.ts";
import { type Proxy, type ProxyOptions, proxies } from "./proxies.ts";

// A guarded site: providers, the guard, a program and a proxy in front of both.

export const [node, python] = backends as readonly [Backend, Backend, ...Backend[]];

/** Each proxy with each program. In `npm test`, nginx with Python and Caddy with PHP. */
export const ways = proxies
  .flatMap((proxy) => backends.map((backend) => ({ proxy, backend })))
  .filter((_, way) => isSoak || way % 4 === 1);

/** Scopes of the routes with a token. */
export const scopes = { orders: "orders:read", files: "files", admin: "admin" } as const;

/** Routes of the site: one for each kind of requirement. */
export const routes = [
  { path: "/public/*", public: true },
  { path: "/orders/*", scope: scopes.orders },
  { path: "/files/*", scope: scopes.files, encodedSlashes: true },
  { path: "/admin/*", scope: scopes.admin },
];

export interface Site {
  readonly setup: TestProviders;
  readonly guard: GuardHere;
  /** Starts the guard again, after it was stopped. */
  startGuard(this: void): Promise<GuardHere>;
  /** Port of the proxy. */
  readonly port: number;
  readonly backendPort: number;
  /** Returns a token with scopes, by default all of them. */
  token(this: void, scope?: string, claims?: object): string;
}

export interface SiteOptions extends Pick<ProxyOptions, "claims" | "isCrossOrigin" | "http" | "site" | "program"> {
  readonly backend?: Backend;
  /** Whether the providers respond with 500 while the guard starts. */
  readonly isBroken?: boolean;
  /** Whether the guard listens on a Unix socket. */
  readonly isSocket?: boolean;
  /** More members of the issuer in the configuration. */
  readonly issuer?: object;
  /** More members of the host in the configuration. */
  readonly host?: object;
  /** More hosts of the configuration. */
  readonly hosts?: object;
  /** More settings of the guard. */
  readonly settings?: object;
  /** Port of the program. Default: a new program. */
  readonly backendPort?: number;
}

export async function startSite(t: TestContext, proxy: Proxy, options: SiteOptions = {}): Promise<Site> {
  const { backend = node, issuer, host, hosts, settings, isSocket = false, isBroken = false, ...others } = options;
  const setup = await startProviders(t);
  setup.isBroken = isBroken;
  const listen = isSocket ? join(await temporaryFolder(t), "guard.sock") : `127.0.0.1:${await freePort()}`;
  const startGuard = (): Promise<GuardHere> =>
    startGuardHere(t, {
      for: proxy.name,
      listen,
      ...settings,
      hosts: {
        "api.example.com": { issuers: [{ issuer: setup.issuer, audience, ...issuer }], routes, ...host },
        ...hosts,
      },
    });
  const guard = await startGuard();
  const backendPort = options.backendPort ?? (await backend.start(t));
  const port = await proxy.start(t, { ...others, guard: isSocket ? listen : guard.port, backendPort });
  const token = (scope = Object.values(scopes).join(" "), claims = {}): string =>
    accessToken(setup, { claims: { scope, ...claims } });
  return { setup, guard, startGuard, port, backendPort, token };
}

export interface Answer {
  /** 0 if there was no response. */
  readonly status: number;
  readonly head: string;
  /** Request as the program saw it; `undefined` if it was not asked. */
  readonly seen: Seen | undefined;
}

/** Sends text and returns the first response, and what the program saw last. */
export async function exchanged(port: number, text: string): Promise<Answer> {
  const reply = (await exchange(port, text)).toString();
  const [, status] = /^HTTP\/1\.1 (\d{3})/.exec(reply) ?? [];
  const [head = ""] = reply.split("\r\n\r\n", 1);
  const [json] = /\{"paths".*\}/s.exec(reply) ?? [];
  return { status: Number(status ?? 0), head, seen: json === undefined ? undefined : (JSON.parse(json) as Seen) };
}

/** Sends a request to the site. */
export function ask(
  port: number,
  { target, headers = [], method = "GET" }: WireRequest,
  token?: string,
): Promise<Answer> {
  const authorization: HeaderLine[] = token === undefined ? [] : [["Authorization", `Bearer ${token}`]];
  const text = requestText({ method, target, headers: [...authorization, ...headers] }, ["Connection", "close"]);
  return exchanged(port, text.replace("Host: op.example", "Host: api.example.com"));
}
