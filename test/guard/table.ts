import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Setup, audience, nonceSecret, resource } from "../bearer/guards.ts";
import { type Row, rows } from "../bearer/requests.ts";
import { type Scope, temporaryFolder } from "../support/service.ts";

// The guard's table of requests, for `jwksd guard`: one host for each guarded path of test/bearer/guards.ts.

const dpop = { dpop: "optional", baseUrl: audience };

/** Returns the issuers and the requirements of each path. */
const pathsOf = ({ issuer, other, down }: Setup) => {
  const one = (options: object = {}) => [{ issuer, audience, ...options }];
  const withDown = [...one(), { issuer: down, audience }];
  return {
    "/plain": [one(), {}],
    "/scope": [one(), { scope: "orders:read orders:list" }],
    "/any": [one(), { scope: { any: ["orders:write", "orders:read"] } }],
    "/permissions": [one({ scopeClaims: ["permissions", "scope"] }), { scope: "orders:read" }],
    "/optional": [one(), { optional: true }],
    "/optional/scope": [one(), { optional: true, scope: "orders:read" }],
    "/client-id": [one({ audience: { claim: "client_id", values: ["app", "other"] } }), {}],
    "/short": [one({ maxTokenBytes: 1_000 }), {}],
    "/oauth": [one({ issuer: `${issuer}/oauth` }), {}],
    "/acr": [one(), { acrValues: ["urn:mace:incommon:iap:silver", "phr"] }],
    "/max-age": [one(), { maxAgeSeconds: 60 }],
    "/step-up": [one(), { acrValues: ["phr"], maxAgeSeconds: 60, scope: "orders:write" }],
    "/jwt": [one({ typ: "JWT" }), {}],
    "/required-claims": [one({ requiredClaims: ["sub", "cnf"] }), {}],
    "/several": [[...one(), { issuer: other, jwksUri: `${other}/jwks`, audience }], {}],
    "/down": [withDown, {}],
    "/down/several": [withDown, {}],
    "/resource": [one({ resource }), { scope: "orders:read" }],
    "/dpop": [one(dpop), {}],
    "/dpop/scope": [one(dpop), { scope: "orders:read" }],
    "/dpop/acr": [one(dpop), { acrValues: ["phr"] }],
    "/dpop-required": [one({ ...dpop, dpop: "required", resource }), {}],
  } as const;
};

/** Paths that a process cannot have, with the reason. */
export const notInGuard: Readonly<Record<string, string>> = {
  "/tenant": "a function of the application decides",
  "/revoked": "a function of the application decides",
  "/step": "a function of the application decides",
  "/check-fails": "a function of the application decides",
  "/denied": "a handler of the application refuses",
  "/denied/401": "a handler of the application refuses",
  "/denied/optional": "a handler of the application refuses",
  "/denied/dpop": "a handler of the application refuses",
  "/cookie": "a function of the application finds the token",
  "/own-keys": "the application has the keys",
  "/function": "a function of the application lists the issuers",
};

export const pathOf = (target: string): string => target.split("?", 1)[0] ?? "";

/** Returns the host of a guarded path. */
export const hostFor = (path: string): string => `${path.slice(1).replaceAll("/", "-")}.example.com`;

/** Returns the hosts of the table. */
export function tableHosts(setup: Setup): object {
  return Object.fromEntries(
    Object.entries(pathsOf(setup)).map(([path, [issuers, requirements]]) => [
      hostFor(path),
      { issuers, routes: [{ path, ...requirements }] },
    ]),
  );
}

/** Returns the hosts of the rows with certificates and nonces, which other rows must not have. Their guard is a second process. */
export const secondHosts = ({ issuer }: Setup): object => ({
  [hostFor("/certificate")]: { issuers: [{ issuer, audience }], routes: [{ path: "/certificate" }] },
  [hostFor("/dpop-nonce")]: { issuers: [{ issuer, audience, ...dpop }], routes: [{ path: "/dpop-nonce" }] },
});

/** Returns the settings of the second guard. */
export async function secondSettings(t: Scope): Promise<{ nonceSecretFile: string; certificateHeader: string }> {
  const nonceSecretFile = join(await temporaryFolder(t), "nonce");
  await writeFile(nonceSecretFile, `${nonceSecret}\n`);
  return { nonceSecretFile, certificateHeader: "Client-Cert" };
}

/** Returns the rows that a guard's process can have. */
export const guardRows = (setup: Setup): readonly Row[] =>
  rows.filter(({ request }) => !Object.hasOwn(notInGuard, pathOf(request(setup).target)));
