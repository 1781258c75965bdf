import { headerLines } from "../../publish/node-response.ts";
import { type Reply, fieldsOf, problem } from "../../publish/respond.ts";
import { titles } from "../../verify/bearer/refusal.ts";
import type { GuardSettings } from "../config/guard-setting-definitions.ts";

/** The request that a proxy asks about. */
export interface Described {
  readonly method: string;
  /** Host name without its port. */
  readonly host: string;
  /** Path and query, as the client sent them. */
  readonly target: string;
  /** Id that the proxy assigned to the request, provided that every check of a request has the same id. */
  readonly id: string | undefined;
}

/** Thrown to refuse a request before its token is read. Like `RefusedRequest`, it is not an Error. */
export class RefusedCheck {
  readonly status: 400 | 403;
  /** Value of the `reason` label. */
  readonly reason: string;
  readonly description: string;

  constructor(status: 400 | 403, reason: string, description: string) {
    this.status = status;
    this.reason = reason;
    this.description = description;
  }

  reply(): Reply {
    return problem(this.status, titles[this.status] ?? "", `${sentence(this.description)}.`).get;
  }
}

const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** The form in which a proxy describes requests and reads decisions. */
export interface Convention {
  readonly describe: (rawHeaders: readonly string[]) => Described;
  /**
   * Whether identity headers are sent even if they have no value. This is necessary if the proxy would replace a
   * missing header with something else.
   */
  readonly sendsEmpty: boolean;
  /** Returns the response that makes the proxy send `reply` to the client. */
  readonly deny: (reply: Reply) => Reply;
}

/** Returns the value of a header that the proxy must set exactly once. @throws RefusedCheck */
export function onlyLine(name: string, rawHeaders: readonly string[]): string {
  const [value, ...others] = headerLines(name.toLowerCase(), rawHeaders);
  if (value === undefined || others.length > 0)
    throw new RefusedCheck(
      400,
      "proxy",
      `the proxy must set the ${name} header exactly once; configure the proxy as described in docs/guard.md`,
    );
  return value;
}

const hostForm = /^(?:[a-z\d_-]+(?:\.[a-z\d_-]+)*|\[[\da-f:.]+\])$/;

/** Returns a host name or address in a form that all programs read the same way, or `undefined` if it is neither. */
export const canonicalHost = (host: string): string | undefined =>
  hostForm.test(host) && URL.canParse(`http://${host}`) ? new URL(`http://${host}`).hostname : undefined;

/** Returns the host without its port, and without the final period of a fully qualified name. @throws RefusedCheck */
function hostOf(value: string): string {
  const host = value.toLowerCase().replace(/\.?(?::\d*)?$/, "");
  if (canonicalHost(host) !== host)
    throw new RefusedCheck(400, "host", "the host is not a host name in canonical form");
  return host;
}

const describeBy =
  (prefix: string, uri: string, id?: string): Convention["describe"] =>
  (rawHeaders) => ({
    method: onlyLine(`${prefix}-Method`, rawHeaders),
    host: hostOf(onlyLine(`${prefix}-Host`, rawHeaders)),
    target: onlyLine(`${prefix}-${uri}`, rawHeaders),
    id: id === undefined ? undefined : onlyLine(`${prefix}-${id}`, rawHeaders),
  });

/** Names under which nginx receives the header fields of a refusal, keyed by the names that the client sees. */
const deniedFields = new Map([
  ["WWW-Authenticate", "X-Jwksd-Denied-Challenge"],
  ["DPoP-Nonce", "X-Jwksd-Denied-Nonce"],
  ["Retry-After", "X-Jwksd-Denied-Retry-After"],
]);

/** Puts a refusal into the headers of a 403, because nginx ignores the body and turns every other status into a 500. */
function denyInHeaders(reply: Reply): Reply {
  const denied = fieldsOf(reply).map(([name, value]) => [deniedFields.get(name) ?? name, value]);
  const own = ["X-Jwksd-Denied-Status", String(reply.status), "X-Jwksd-Denied-Body", reply.body ?? ""];
  return { status: 403, headers: [...denied.flat(), ...own], body: reply.body };
}

const forwarded = describeBy("X-Forwarded", "Uri");

/** The conventions, keyed by the value of `--for`. */
export const conventions: Readonly<Record<NonNullable<GuardSettings["for"]>, Convention>> = {
  nginx: { describe: describeBy("X-Original", "URI", "Request-ID"), sendsEmpty: false, deny: denyInHeaders },
  // If a header is missing, Caddy copies the text of its placeholder.
  caddy: { describe: forwarded, sendsEmpty: true, deny: (reply) => reply },
  traefik: { describe: forwarded, sendsEmpty: false, deny: (reply) => reply },
};

/**
 * Headers that backends may use to override the path or method of a request. Gunicorn removes `SCRIPT_NAME` from the
 * beginning of the path if the request comes from loopback.
 */
const overrides = {
  path: /^(?:x-(?:original|rewrite)-url|(?:x-)?script-name)$/,
  method: /^x-(?:http-method(?:-override)?|method-override)$/,
};

/**
 * Rejects headers that a backend could mistake for the guard's headers or for a different request line. In a header's
 * name, CGI and its successors do not distinguish between characters other than letters and digits.
 *
 * @param hasMethods whether a route of the host depends on the method
 * @throws RefusedCheck
 * @see RFC 3875 section 4.1.18
 */
export function refuseForged(rawHeaders: readonly string[], hasMethods: boolean): void {
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = (rawHeaders[i] ?? "").toLowerCase().replace(/[^a-z\d]/g, "-");
    if (name.startsWith("x-jwksd-")) throw new RefusedCheck(400, "header", "only the guard may set X-Jwksd headers");
    if (overrides.path.test(name) || (hasMethods && overrides.method.test(name)))
      throw new RefusedCheck(400, "header", "headers that override the path or the method are not allowed");
  }
}
