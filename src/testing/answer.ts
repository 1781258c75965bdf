import { jsonOf } from "../base/json.ts";
import { type Claims, type TokenChanges, tokenFaults } from "./faults.ts";
import { type HostileName, hostileNames } from "./hostile.ts";
import type { TestAlgorithm } from "./keys.ts";

/** What the answers are made of. */
interface Provider {
  readonly issuer: string;
  readonly algorithms: readonly TestAlgorithm[];
  readonly keys: () => readonly object[];
  readonly hostile: (name: HostileName) => Promise<string>;
  readonly token: (claims: Claims, changes: TokenChanges) => Promise<string>;
}

const caching = { "Cache-Control": "public, max-age=300" };
const json = (value: unknown, headers: Record<string, string> = caching): Response => Response.json(value, { headers });

/**
 * What the provider answers: its documents, tokens at `/token`, and below `/hostile/NAME` the documents of an issuer with a fault.
 *
 * @see OpenID Connect Discovery 1.0 section 4; RFC 8414 section 3; RFC 6749 section 4.4
 */
export async function answerOf(request: Request, provider: Provider): Promise<Response> {
  const { issuer, algorithms, token } = provider;
  const { pathname, searchParams } = new URL(request.url);
  const root = issuer.replace(/\/$/, "");
  const base = new URL(root).pathname.replace(/\/$/, "");
  const path = pathname.startsWith(base) ? pathname.slice(base.length) : pathname;
  const metadata = (name: string, root = name.replace(/\/$/, "")): object => ({
    issuer: name,
    jwks_uri: `${root}/jwks`,
    token_endpoint: `${root}/token`,
    response_types_supported: ["token"],
    subject_types_supported: ["public"],
    id_token_signing_alg_values_supported: algorithms,
  });
  const [, faulty = "", rest = ""] = /^\/hostile\/(\w+)(\/.*)$/.exec(path) ?? [];
  if (isHostile(faulty)) {
    const own = `${root}/hostile/${faulty}`;
    if (rest === "/jwks") return new Response(await provider.hostile(faulty), { headers: { ...type, ...caching } });
    if (rest === "/.well-known/openid-configuration") return json(metadata(own));
    if (rest === "/token")
      return tokenAnswer(request, searchParams, (given, changes) => token({ iss: own, ...given }, changes));
  }
  if (path === "/.well-known/openid-configuration" || pathname === `/.well-known/oauth-authorization-server${base}`)
    return json(metadata(issuer));
  if (path === "/jwks") return json({ keys: provider.keys() });
  if (path === "/token") return tokenAnswer(request, searchParams, token);
  return new Response("There is nothing at this path.\n", { status: 404 });
}

const type = { "Content-Type": "application/jwk-set+json" };
const isHostile = (name: string): name is HostileName => (hostileNames as readonly string[]).includes(name);

/** GET gives the token alone, POST what a token endpoint answers. Parameters are claims; `fault` and `alg` are changes. */
async function tokenAnswer(request: Request, query: URLSearchParams, token: Provider["token"]): Promise<Response> {
  const form = request.method === "POST" ? new URLSearchParams(await request.text()) : query;
  const claims: Record<string, unknown> = {};
  const changes: Record<string, unknown> = {};
  for (const [name, value] of form) {
    if (name === "fault") changes[value] = true;
    else if (name === "alg") changes[name] = value;
    else if (!ofRequests.has(name)) claims[name] = texts.has(name) ? value : (jsonOf(value) ?? value);
  }
  try {
    const made = await token(claims, changes);
    const headers = { "Cache-Control": "no-store" };
    if (request.method !== "POST") return new Response(made, { headers });
    return json({ access_token: made, token_type: "Bearer", expires_in: 300 }, headers);
  } catch (error) {
    return Response.json({ error: "invalid_request", error_description: String(error) }, { status: 400 });
  }
}

/** Claims that are texts, even where they look like numbers. @see RFC 7519 section 4.1; RFC 9068 section 2.2 */
const texts = new Set(["iss", "sub", "client_id", "jti", "scope"]);
/** Parameters of the grant that are no claims. */
const ofRequests = new Set(["grant_type", "client_secret", "client_assertion", "client_assertion_type", "resource"]);

/** The paths of the tokens with a fault. */
export const faultPaths = (): readonly (readonly [path: string, title: string])[] =>
  Object.entries(tokenFaults).map(([name, { title }]) => [`/token?fault=${name}`, title]);
