import { targetPath } from "../../base/urls.ts";
import { headerLines } from "../../publish/node-response.ts";
import type { Reply } from "../../publish/respond.ts";
import type { Guard } from "../../verify/bearer/access-decision.ts";
import { type Refusal, reasonOf } from "../../verify/bearer/refusal.ts";
import type { VerifiedAccessToken } from "../../verify/bearer/requirements.ts";
import { readClaims } from "../../verify/token/compact-jws.ts";
import type { Host, Hosts, IssuerGuard, Route } from "./host-config.ts";
import { identityHeaders } from "./identity-headers.ts";
import { methods, selectRoute } from "./paths.ts";
import { type Convention, type Described, RefusedCheck, onlyLine, refuseForged } from "./proxy-conventions.ts";
import type { SameRequests } from "./repeated-checks.ts";

/** The guard's decision about a request. */
export interface Decision {
  /** Status for the client: 200 lets the request through. */
  readonly status: number;
  /** Kind of request or refusal. There are few enough kinds to use them as values of a metric label. */
  readonly reason: string;
  /** Response to the proxy. */
  readonly reply: Reply;
  /** Log line for a refusal. */
  readonly line?: { readonly level: "info" | "warn"; readonly fields: object; readonly message: string };
}

/** The part of a request that the guards' options use. */
export interface Source {
  /** Client certificate, in a form that the `certificate` option accepts. */
  readonly certificate: string | undefined;
}

/** The settings and state that a guard needs for its decisions. */
export interface CheckContext {
  readonly convention: Convention;
  readonly certificateHeader: string | undefined;
  readonly sameRequests: SameRequests;
}

/** Decides whether to let a request through. Every error results in a refusal. */
export async function decide(rawHeaders: readonly string[], hosts: Hosts, context: CheckContext): Promise<Decision> {
  let described: Described | undefined;
  try {
    described = context.convention.describe(rawHeaders);
    return await decideAbout(described, rawHeaders, hosts, context);
  } catch (error) {
    if (!(error instanceof RefusedCheck)) throw error;
    return refused(described, error.reason, error, error.reply(), context);
  }
}

/** @param reason value of the `reason` label @param reply response to the client */
function refused(
  described: Described | undefined,
  reason: string,
  refusal: Refusal,
  reply: Reply,
  { convention }: CheckContext,
): Decision {
  const { status, error, code, cause } = refusal;
  const { host, method, target, id } = described ?? {};
  const fields = { host, method, path: target && targetPath(target), status, error, code, id };
  const text = status === 503 ? (cause as Error).message : reasonOf(refusal);
  const line = { level: status === 503 ? "warn" : "info", fields, message: `request refused: ${text}` } as const;
  return { status, reason, reply: convention.deny(reply), line };
}

/** @throws RefusedCheck */
async function decideAbout(
  described: Described,
  rawHeaders: readonly string[],
  hosts: Hosts,
  context: CheckContext,
): Promise<Decision> {
  const host = hosts.get(described.host) ?? hosts.get("*");
  refuseForged(rawHeaders, host?.hasMethods ?? true);
  const source: Source = { certificate: certificateOf(context.certificateHeader, rawHeaders) };
  if (!methods.includes(described.method)) throw new RefusedCheck(400, "method", "the method is unknown or CONNECT");
  if (host === undefined) throw new RefusedCheck(403, "host", "no route is configured for this host");

  const wanted = preflightMethod(described, rawHeaders);
  const preflighted = wanted === undefined ? undefined : routeOf(host, wanted, described.target);
  if (preflighted?.passesPreflights === true) return allowed(host, context, "preflight");
  const route = routeOf(host, described.method, described.target);
  if (route === undefined) throw new RefusedCheck(403, "route", "no route is configured for this path and method");
  const destination = destinationOf(described.target, rawHeaders);
  if (destination !== undefined && routeOf(host, described.method, destination) !== route)
    throw new RefusedCheck(400, "path", "the Destination header names a path on a different route");
  const { requirements } = route;
  if (requirements === undefined) return allowed(host, context, "public");

  const { method, target } = described;
  const authorization = joined("authorization", rawHeaders);
  const guard = guardFor(host.guards, authorization);
  const asked = { method, target, authorization, proof: joined("dpop", rawHeaders), source, raw: source };
  const request = context.sameRequests(described, asked);
  const decision = await guard.decide(request, requirements);
  if ("auth" in decision)
    return allowed(host, context, decision.auth === undefined ? "anonymous" : "token", decision.auth);
  const { refusal, reply } = decision;
  return refused(described, refusal.error ?? refusal.code ?? "no_token", refusal, reply, context);
}

/**
 * Returns all lines of a header, joined, or `undefined` if there are none. Several joined lines are neither valid
 * credentials nor a valid proof.
 */
function joined(name: string, rawHeaders: readonly string[]): string | undefined {
  const lines = headerLines(name, rawHeaders);
  return lines.length === 0 ? undefined : lines.join(", ");
}

function allowed(
  { identity }: Host,
  { convention }: CheckContext,
  reason: string,
  auth?: VerifiedAccessToken,
): Decision {
  // If a 200 were cached, a replayed proof would get through.
  const headers = [
    "Content-Length",
    "0",
    "Cache-Control",
    "no-store",
    ...identityHeaders(auth, identity, convention.sendsEmpty),
  ];
  return { status: 200, reason, reply: { status: 200, headers, body: null } };
}

/** @throws RefusedCheck */
function routeOf({ routes }: Host, method: string, target: string): Route | undefined {
  const [path = ""] = target.split("?", 1);
  const selected = selectRoute(routes, method, path);
  if ("problem" in selected) throw new RefusedCheck(400, "path", selected.problem);
  return selected.route;
}

/** Returns the path in a Destination header, to which COPY and MOVE write. @see RFC 4918 section 10.3 */
function destinationOf(target: string, rawHeaders: readonly string[]): string | undefined {
  const path = joined("destination", rawHeaders)?.replace(/^[a-z][a-z\d+.-]*:(?:\/\/[^/?#]*)?\/?/i, "/");
  if (path === undefined || path.startsWith("/")) return path;
  // CouchDB's destinations are relative.
  const [own = ""] = target.split("?", 1);
  return own.slice(0, own.lastIndexOf("/") + 1) + path;
}

/** Returns the method that a CORS preflight asks about. @see Fetch Standard, CORS-preflight fetch */
function preflightMethod({ method }: Described, rawHeaders: readonly string[]): string | undefined {
  const [wanted, ...others] = headerLines("access-control-request-method", rawHeaders);
  const isPreflight = method === "OPTIONS" && headerLines("origin", rawHeaders).length === 1 && others.length === 0;
  return isPreflight ? wanted : undefined;
}

/**
 * Returns the guard for the issuer that a token names. That guard then verifies the token. If the token does not name
 * any of the host's issuers, returns the first guard, which rejects the token.
 */
function guardFor(guards: readonly IssuerGuard[], authorization: string = ""): Guard {
  // A host has at least one guard, unless all of its routes are public.
  const [first, ...others] = guards as readonly [IssuerGuard, ...IssuerGuard[]];
  if (others.length === 0) return first.guard;
  const token = authorization.slice(authorization.lastIndexOf(" ") + 1);
  const named = issuerIn(token);
  return (guards.find(({ issuer }) => issuer === named) ?? first).guard;
}

function issuerIn(token: string): unknown {
  try {
    return readClaims(token).iss;
  } catch {
    return undefined;
  }
}

/** Returns the certificate in the header that the proxy sets for every request. @throws RefusedCheck */
function certificateOf(name: string | undefined, rawHeaders: readonly string[]): string | undefined {
  if (name === undefined) return undefined;
  const value = onlyLine(name, rawHeaders);
  if (!/^:.*:$/.test(value))
    throw new RefusedCheck(
      400,
      "proxy",
      `the proxy must set the ${name} header to the certificate, with a colon before and after it`,
    );
  return value === "::" ? undefined : value;
}
