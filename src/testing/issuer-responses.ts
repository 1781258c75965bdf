import { invalidOption } from "../base/errors.ts";
import { jsonOf } from "../base/json.ts";
import { object } from "../base/options.ts";
import { isLoopbackUrl, wellKnownPath } from "../base/urls.ts";
import { type HostileName, hostileNames } from "./faulty-sets.ts";
import type { TestAlgorithm } from "./test-keys.ts";
import { type Claims, type TestTokenOptions, tokenFaults } from "./token-faults.ts";

/** The content of the responses. */
interface Provider {
  readonly issuer: string;
  readonly algorithms: readonly TestAlgorithm[];
  readonly keys: () => readonly object[];
  readonly hostile: (name: HostileName) => Promise<string>;
  readonly token: (claims: Claims, changes: TestTokenOptions) => Promise<string>;
}

const caching = { "Cache-Control": "public, max-age=300" };
const noStore = { "Cache-Control": "no-store" };
const json = (value: unknown, headers: Record<string, string> = caching): Response => Response.json(value, { headers });

/**
 * Responds to a request to the test issuer, which serves its documents, tokens at `/token`, and an issuer with a fault
 * at each `/hostile/NAME`. Web pages from any origin can read the documents, but only pages from this machine can read
 * tokens.
 *
 * @see OpenID Connect Discovery 1.0 section 4; RFC 8414 section 3; RFC 6749 section 4.4; Fetch Standard, CORS protocol
 */
export async function answerOf(request: Request, provider: Provider): Promise<Response> {
  const response = request.method === "OPTIONS" ? new Response(null, { status: 204 }) : await routed(request, provider);
  const origin = request.headers.get("origin");
  const isToken = new URL(request.url).pathname.endsWith("/token");
  const readers = !isToken ? "*" : origin !== null && isLoopbackUrl(origin) ? origin : undefined;
  if (isToken) response.headers.set("Vary", "Origin");
  if (readers === undefined) return response;
  response.headers.set("Access-Control-Allow-Origin", readers);
  if (request.method === "OPTIONS") {
    response.headers.set("Access-Control-Allow-Methods", "GET, POST");
    response.headers.set("Access-Control-Allow-Headers", "Authorization, Content-Type, DPoP");
  }
  return response;
}

async function routed(request: Request, provider: Provider): Promise<Response> {
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
  const [, faulty, rest = ""] = /^\/hostile\/([^/]*)(.*)$/.exec(path) ?? [];
  if (faulty !== undefined && !isHostile(faulty))
    return notFound(`There is no document with this fault. Use one of: ${hostileNames.join(", ")}.`);
  if (faulty !== undefined) {
    const own = `${root}/hostile/${faulty}`;
    if (rest === "/jwks") return new Response(await provider.hostile(faulty), { headers: { ...type, ...caching } });
    if (rest === discoveryPath) return json(metadata(own));
    if (rest === "/token")
      return tokenResponse(request, searchParams, (claims, changes) => token({ iss: own, ...claims }, changes));
    return notFound(`Use one of: ${["/jwks", discoveryPath, "/token"].map((end) => own + end).join(", ")}.`);
  }
  if (path === discoveryPath || pathname === wellKnownPath("oauth-authorization-server", base))
    return json(metadata(issuer));
  if (path === "/jwks") return json({ keys: provider.keys() });
  if (path === "/token") return tokenResponse(request, searchParams, token);
  return notFound("There is nothing at this path.");
}

const discoveryPath = wellKnownPath("openid-configuration");
const type = { "Content-Type": "application/jwk-set+json" };
const isHostile = (name: string): name is HostileName => (hostileNames as readonly string[]).includes(name);
const notFound = (text: string): Response => new Response(`${text}\n`, { status: 404 });

/**
 * Returns just the token for GET, or a token endpoint's response for POST. Parameters become claims, except for `fault`
 * and `alg`.
 */
async function tokenResponse(request: Request, query: URLSearchParams, token: Provider["token"]): Promise<Response> {
  const claims: Record<string, unknown> = {};
  const changes: Record<string, unknown> = {};
  try {
    for (const [name, value] of request.method === "POST" ? await parametersOf(request) : query) {
      checkParameter(name, value);
      if (name === "fault") changes[String(value)] = true;
      else if (name === "alg") changes[name] = value;
      else if (!requestParameters.has(name) && !isSecret(name))
        claims[name] = typeof value !== "string" || stringClaims.has(name) ? value : (jsonOf(value) ?? value);
    }
    const accessToken = await token(claims, changes);
    if (request.method !== "POST") return new Response(accessToken, { headers: noStore });
    return json({ access_token: accessToken, token_type: "Bearer", expires_in: 300 }, noStore);
  } catch (error) {
    // RFC 6749 section 5.2: printable ASCII without quotes and backslashes.
    const description = (error as Error).message.replaceAll(/[^ !#-[\]-~]/g, "'");
    return Response.json(
      { error: "invalid_request", error_description: description },
      { status: 400, headers: noStore },
    );
  }
}

/** Returns the parameters of a token request, from a form or JSON. @see RFC 6749 section 4.4.2 */
async function parametersOf(request: Request): Promise<Iterable<readonly [name: string, value: unknown]>> {
  const body = await request.text();
  const [mediaType = ""] = (request.headers.get("content-type") ?? "").split(";");
  if (body === "" || /^application\/x-www-form-urlencoded\s*$/i.test(mediaType)) return new URLSearchParams(body);
  const members = /^application\/json\s*$/i.test(mediaType) ? jsonOf(body) : undefined;
  if (!object.holds(members))
    throw invalidOption("the body must be a form (application/x-www-form-urlencoded) or a JSON object");
  return Object.entries(members);
}

/**
 * Rejects a body that was parsed as a form but is something else. Otherwise, its text, which may include a client
 * secret, would become a claim's name or value.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
function checkParameter(name: string, value: unknown): void {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const members = text.match(/[\p{L}\p{N}_.-]+(?=[\s\]]*=|["']\s*:)/gu) ?? [];
  if (claimName.test(name) && !members.some(isSecret)) return;
  throw invalidOption(
    "one of the parameters is not a claim; send name=value pairs separated by &, or JSON with Content-Type: application/json",
  );
}

/** Matches claim names, which may be URIs. @see RFC 7519 section 4.2 */
const claimName = /^[\p{L}\p{N}_@$][\p{L}\p{N}_@$.:/#~-]{0,127}$/u;

/** Reports whether a parameter is a credential, however its name is spelled. @see OAuth Parameters registry (IANA) */
function isSecret(name: string): boolean {
  const letters = name.toLowerCase().replaceAll(/[^a-z]/g, "");
  return /(secret|password|assertion|token|verifier|^code|devicecode|authorizedcode|authreqid)$/.test(letters);
}

/** Claims that remain strings even if they look like numbers. @see RFC 7519 section 4.1; RFC 9068 section 2.2 */
const stringClaims = new Set(["iss", "sub", "client_id", "jti", "scope"]);
/**
 * Other parameters of token requests that are not claims.
 *
 * @see RFC 6749 section 4; RFC 7521 section 4; RFC 7636 section 4.5
 */
const requestParameters = new Set("grant_type client_assertion_type resource redirect_uri username".split(" "));

/** Returns the paths at which tokens with a fault are served. */
export const faultPaths = (): readonly (readonly [path: string, title: string])[] =>
  Object.entries(tokenFaults).map(([name, { title }]) => [`/token?fault=${name}`, title]);
