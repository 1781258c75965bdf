import { createHash } from "node:crypto";
import { readCertificates } from "../../src/doctor/node/x5c-certificates.ts";
import type { HttpExchange, Observations, Probes } from "../../src/doctor/observations.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";

export const at = Date.parse("2026-11-20T12:00:00Z");
export const issuer = "https://login.example.com";
export const jwksUri = `${issuer}/jwks`;

/** Returns a public JWK as a sound provider publishes it. */
export const published = (kid: string, key: object = ecKey(kid), alg = "ES256"): Record<string, unknown> => ({
  ...withoutPrivate(key),
  kid,
  alg,
  use: "sig",
});

/** The key next to the one that a fixture is about. */
export const sound = published("sound");

type Headers = Readonly<Record<string, string | undefined>>;

const pairs = (headers: Headers): (readonly [string, string])[] =>
  Object.entries(headers).flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]));

export const tagOf = (body: Uint8Array): string => `"${createHash("sha256").update(body).digest("hex")}"`;

/** Returns a sound provider's response with these changes. */
export function response(body: Uint8Array, headers: Headers = {}, more: Partial<HttpExchange> = {}): HttpExchange {
  return {
    url: jwksUri,
    status: 200,
    headers: pairs({
      "content-type": "application/jwk-set+json",
      "content-length": String(body.length),
      "cache-control": "public, max-age=3600, stale-while-revalidate=3600",
      etag: tagOf(body),
      "access-control-allow-origin": "*",
      ...headers,
    }),
    body,
    waitMs: 20,
    tls: { notAfter: at + 60 * 24 * 3600 * 1000 },
    ...more,
  };
}

export const bytes = (value: unknown): Uint8Array =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value));

/** Changes to a sound provider. */
export interface Changes {
  readonly keys?: readonly unknown[];
  /** Replaces the keys. */
  readonly body?: Uint8Array;
  readonly headers?: Headers;
  readonly set?: Partial<HttpExchange>;
  /** Makes the response incomplete. */
  readonly failed?: Pick<HttpExchange, "failure" | "redirects">;
  readonly probes?: Partial<Probes>;
  /** Members of the discovery document. */
  readonly document?: Readonly<Record<string, unknown>>;
  readonly discovery?: Partial<HttpExchange>;
  readonly rest?: Partial<Observations>;
}

function withoutBody(exchange: HttpExchange): HttpExchange {
  const { body, ...rest } = exchange;
  return body === undefined ? exchange : rest;
}

/** Returns the observations of a sound provider with these changes. */
export function observed(changes: Changes = {}): Observations {
  const { keys = [sound, published("next")], headers = {}, probes = {}, document = {} } = changes;
  const body = changes.body ?? bytes({ keys });
  const set = changes.failed ? { url: jwksUri, ...changes.failed } : response(body, headers, changes.set);
  const notModified = {
    ...withoutBody(set),
    status: 304,
    headers: (set.headers ?? []).filter(([name]) => !name.startsWith("content-")),
  };
  const metadata = bytes({
    issuer,
    jwks_uri: jwksUri,
    id_token_signing_alg_values_supported: ["ES256"],
    ...document,
  });
  const good = set.status === 200 && set.body !== undefined;
  return {
    at,
    issuer,
    discovery: response(
      metadata,
      { "content-type": "application/json" },
      { url: `${issuer}/.well-known/openid-configuration`, ...changes.discovery },
    ),
    set,
    ...(good && {
      probes: {
        again: set,
        head: withoutBody(set),
        revalidate: notModified,
        weak: set,
        foreign: set,
        json: set,
        origin: set,
        noAgent: set,
        gzip: set,
        ipv4: set,
        ipv6: set,
        ...probes,
      },
    }),
    ...(!good && { probes }),
    certificates: readCertificates(parsed(body)),
    ...changes.rest,
  };
}

/** Returns the same observations for a set without an issuer, such as a SPIFFE bundle. */
export function asSet(observations: Observations): Observations {
  const { discovery: _discovery, issuer: _issuer, ...rest } = observations;
  return rest;
}

function parsed(body: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(body).toString());
  } catch {
    return undefined;
  }
}
