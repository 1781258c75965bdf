import { invalidOption } from "../../base/errors.ts";
import type { VerifiedAccessToken } from "../../verify/bearer/requirements.ts";
import { RefusedCheck } from "./proxy-conventions.ts";

/**
 * Limits for identity headers, in bytes. Headers within these limits all fit into nginx's `proxy_buffer_size 16k` and
 * are accepted by backends.
 */
export const identityLimits = { value: 2_048, all: 8_192 } as const;

/** An identity header, and a function that returns its value for the sender of a request. */
export type IdentityHeader = readonly [name: string, valueOf: (auth: VerifiedAccessToken) => unknown];

const standardHeaders: readonly IdentityHeader[] = [
  ["X-Jwksd-Issuer", ({ claims }) => claims.iss],
  ["X-Jwksd-Subject", ({ claims }) => claims.sub],
  ["X-Jwksd-Client", ({ clientId }) => clientId],
  ["X-Jwksd-Scope", ({ scopes }) => scopes.join(" ")],
];

/**
 * Returns the identity headers for a host that lists these claims. For `tenant_id`, the header is
 * `X-Jwksd-Claim-Tenant-Id`.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function identityOf(claims: readonly string[]): readonly IdentityHeader[] {
  const own = claims.map((claim): IdentityHeader => [
    ["X-Jwksd-Claim", ...(claim.match(/[a-z\d]+/gi) ?? []).map(title)].join("-"),
    (auth) => (Object.hasOwn(auth.claims, claim) ? auth.claims[claim] : undefined),
  ]);
  const names = new Set(own.map(([name]) => name));
  if (names.size < own.length || names.has("X-Jwksd-Claim"))
    throw invalidOption('the names in "claims" must differ in their letters or digits; remove one');
  return [...standardHeaders, ...own];
}

const title = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1).toLowerCase();

/**
 * Returns a request's identity headers, as alternating names and values.
 *
 * @param auth `undefined` for a request without a token
 * @param sendsEmpty whether headers without a value are included
 * @throws RefusedCheck if a value is too long to be passed on in full
 */
export function identityHeaders(
  auth: VerifiedAccessToken | undefined,
  identity: readonly IdentityHeader[],
  sendsEmpty: boolean,
): readonly string[] {
  let bytes = 0;
  return identity.flatMap(([name, valueOf]) => {
    const text = encoded(auth && valueOf(auth));
    bytes += text.length;
    if (text.length > identityLimits.value || bytes > identityLimits.all)
      throw new RefusedCheck(403, "identity", `the token's ${name} is too long to be passed on`);
    return text === "" && !sendsEmpty ? [] : [name, text];
  });
}

/** Returns a claim in visible ASCII, with everything else percent-encoded. @throws RefusedCheck */
function encoded(value: unknown): string {
  if (value === undefined || value === null) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (!text.isWellFormed()) throw new RefusedCheck(403, "identity", "a claim in the token is not valid Unicode");
  return text.replace(/[^!-$&-~]+/g, (other) => encodeURIComponent(other));
}
