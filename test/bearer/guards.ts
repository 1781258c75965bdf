import {
  type BearerGuard,
  type BearerGuardOptions,
  type Challenge,
  type ApplicationDenial,
  type Requirements,
  createBearerGuard,
} from "../../src/verify/bearer/index.ts";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";

// The API under test, the same in every framework and runtime: one path for each guard.

/** The providers of a test. */
export interface Setup {
  readonly issuer: string;
  readonly other: string;
  /** Issuer of a provider that is down. */
  readonly down: string;
  /** Additional guards for one test. */
  readonly more?: Readonly<Record<string, GuardedPath>>;
}

export const audience = "https://api.example.com";
export const resource = "https://api.example.com/orders";
export const nonceSecret = "a secret that all replicas of a test share";

export interface GuardedPath {
  readonly bearer: BearerGuard;
  readonly requirements: Requirements;
  /** Denial with which the handler refuses a request that the guard has let through. */
  readonly denial?: ApplicationDenial | undefined;
}

const guarded = (bearer: BearerGuard, requirements: Requirements = {}, denial?: ApplicationDenial): GuardedPath => ({
  bearer,
  requirements,
  denial,
});

/** Returns the handler's response to a request that the guard has let through. */
export const answerOf = (
  { bearer, denial }: GuardedPath,
  request: object,
): Omit<Challenge, "status"> & { status: number } =>
  denial === undefined
    ? { status: 200, headers: {}, body: JSON.stringify({ sub: bearer.authOf(request)?.claims.sub }) }
    : bearer.challenge(request, denial);

const notYours = { status: 403, description: "the order belongs to another user", scope: "orders:admin" } as const;
const ended = { status: 401, description: "the session has ended" } as const;

/** Returns the guards by path. */
export function guardsOf({ issuer, other, down, more }: Setup): Readonly<Record<string, GuardedPath>> {
  const guard = (options: Partial<BearerGuardOptions> = {}): BearerGuard =>
    createBearerGuard({ issuer, audience, ...options });
  const dpop = { dpop: "optional", baseUrl: audience } as const;
  const plain = guard();
  return {
    "/plain": guarded(plain),
    "/scope": guarded(plain, { scope: "orders:read orders:list" }),
    "/any": guarded(plain, { scope: { any: ["orders:write", "orders:read"] } }),
    "/permissions": guarded(guard({ scopeClaims: ["permissions", "scope"] }), { scope: "orders:read" }),
    "/tenant": guarded(plain, { check: ({ claims }, request) => claims["tenant"] === fieldOf(request, "x-tenant") }),
    "/revoked": guarded(plain, {
      scope: "orders:read",
      check: async ({ claims }) => claims["revoked"] !== true || { status: 401, description: "the token was revoked" },
    }),
    "/step": guarded(plain, {
      check: () => ({ status: 403, description: "large orders need more", scope: "orders:large" }),
    }),
    "/check-fails": guarded(plain, { check: () => Promise.reject(new Error("the database is down")) }),
    "/optional": guarded(plain, { optional: true }),
    "/optional/scope": guarded(plain, { optional: true, scope: "orders:read" }),
    "/denied": guarded(plain, { scope: "orders:read" }, notYours),
    "/denied/401": guarded(plain, {}, ended),
    "/denied/optional": guarded(plain, { optional: true }, notYours),
    "/denied/dpop": guarded(guard(dpop), {}, notYours),
    "/client-id": guarded(guard({ audience: { claim: "client_id", values: ["app", "other"] } })),
    "/cookie": guarded(
      guard({ token: (request) => /(?:^|; )token=([^;]*)/.exec(fieldOf(request, "cookie") ?? "")?.[1] }),
    ),
    "/short": guarded(guard({ maxTokenBytes: 1_000 })),
    "/own-keys": guarded(guard({ issuer: { issuer, keys: createRemoteKeySet({ jwksUri: `${issuer}/jwks` }) } })),
    "/oauth": guarded(guard({ issuer: `${issuer}/oauth` })),
    "/acr": guarded(plain, { acrValues: ["urn:mace:incommon:iap:silver", "phr"] }),
    "/max-age": guarded(plain, { maxAgeSeconds: 60 }),
    "/step-up": guarded(plain, { acrValues: ["phr"], maxAgeSeconds: 60, scope: "orders:write" }),
    "/jwt": guarded(guard({ typ: "JWT" })),
    "/required-claims": guarded(guard({ requiredClaims: ["sub", "cnf"] })),
    "/several": guarded(guard({ issuer: [issuer, { issuer: other, jwksUri: `${other}/jwks` }] })),
    "/function": guarded(guard({ issuer: async (name) => new URL(name).host === new URL(issuer).host })),
    "/down": guarded(guard({ issuer: [issuer, down] })),
    "/down/several": guarded(guard({ issuer: [issuer, down] })),
    "/resource": guarded(guard({ resource }), { scope: "orders:read" }),
    "/dpop": guarded(guard(dpop)),
    "/dpop/scope": guarded(guard(dpop), { scope: "orders:read" }),
    "/dpop/acr": guarded(guard(dpop), { acrValues: ["phr"] }),
    "/dpop-required": guarded(guard({ ...dpop, dpop: "required", resource })),
    "/dpop-nonce": guarded(guard({ ...dpop, nonceSecret })),
    "/certificate": guarded(guard({ certificate: certificateOf })),
    ...more,
  };
}

/** Returns the certificate that a proxy writes into a header field. */
const certificateOf = (request: object): string | undefined => fieldOf(request, "client-cert");

/** Returns a header field. Each adapter passes its own kind of request. */
function fieldOf(request: object, name: string): string | undefined {
  const { headers } = (request as { req?: { raw?: Request } }).req?.raw ?? (request as Request);
  const field = typeof headers.get === "function" ? headers.get(name) : Reflect.get(headers, name);
  return typeof field === "string" ? field : undefined;
}

/** Returns the handlers of the resource's metadata, which the applications serve next to the guarded paths. */
export const metadataOf = ({ issuer }: Setup) =>
  createBearerGuard({ issuer, audience, resource, metadata: { scopes_supported: ["orders:read"] } }).metadata;
