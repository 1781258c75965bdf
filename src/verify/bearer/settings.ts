import { systemClock } from "../../base/clock.ts";
import { ConfigError, invalidOption } from "../../base/errors.ts";
import {
  type Rule,
  type Rules,
  anything,
  callback,
  checkOptions,
  clock,
  clockTolerance,
  number,
  object,
  oneOf,
  required,
  stringThat,
  strings,
  wholeNumber,
  withMethods,
} from "../../base/options.ts";
import { publicKeyAlgorithms } from "../../keys/crypto/algorithms.ts";
import { futureSeconds } from "../client/audience-and-times.ts";
import { keySetRules, resolveOptions } from "../relying-party/options.ts";
import { maxTokenBytes } from "../token/compact-jws.ts";
import { checkVerifyOptions } from "../token/verify.ts";
import { quotable } from "./refusal.ts";
import { requirementRules } from "./requirements.ts";
import type { AudienceClaim, BearerGuardOptions } from "./types.ts";

const httpsUrl: Rule = stringThat("an https URL without a query or fragment", (value) => {
  if (!URL.canParse(value) || /[?#]/.test(value)) return false;
  const { protocol, username, password } = new URL(value);
  return /^https?:$/.test(protocol) && username === "" && password === "" && quotable(value) === value;
});

export const bearerRules: Rules<BearerGuardOptions> = {
  issuer: required({ ...anything, must: "the issuer whose tokens are accepted" }),
  audience: required({ ...anything, must: "the name by which tokens identify this API" }),
  typ: oneOf("at+jwt", "JWT"),
  scopeClaims: strings,
  maxTokenBytes: wholeNumber(1, 2 ** 20),
  token: callback,
  requestId: callback,
  algorithms: strings,
  clockToleranceSeconds: clockTolerance,
  requiredClaims: strings,
  maxIssuers: number(1),
  resource: httpsUrl,
  metadata: {
    must: "an object that is serializable as JSON",
    types: ["object"],
    holds: (value): value is object => object.holds(value) && isJson(value),
  },
  dpop: oneOf("optional", "required"),
  baseUrl: httpsUrl,
  proofMaxAgeSeconds: number(1),
  replay: callback,
  nonceSecret: stringThat("a string of at least 32 characters", (value) => value.length >= 32),
  certificate: callback,
  state: withMethods("get", "set"),
  keySet: object,
  clock,
  onEvent: callback,
};

type Certificate = string | Uint8Array | undefined;

const isAudienceClaim = (audience: BearerGuardOptions["audience"]): audience is AudienceClaim => object.holds(audience);

function isJson(value: object): boolean {
  try {
    return JSON.stringify(value) !== undefined;
  } catch {
    return false;
  }
}

/** Remedies for options that are given in the wrong place, keyed by name. */
const remedies: Readonly<Record<string, string>> = {
  ...Object.fromEntries(Object.keys(keySetRules).map((name) => [name, `write keySet: { ${name} }`])),
  ...Object.fromEntries(
    Object.keys(requirementRules).map((name) => [name, `pass it to each route, as in bearer.express({ ${name} })`]),
  ),
  jwksUri: "write issuer: { issuer, jwksUri }",
  keys: "write issuer: { issuer, keys }",
};

/** Returns the options with their defaults. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export function resolveBearerOptions(options: BearerGuardOptions) {
  for (const name of object.holds(options) ? Object.keys(options) : [])
    if (!Object.hasOwn(bearerRules, name) && Object.hasOwn(remedies, name))
      throw new ConfigError("ERR_OPTION_UNKNOWN", `there is no "${name}" option; ${remedies[name]}`);
  const given = checkOptions(options, bearerRules);
  const { issuer, resource, dpop } = given;
  const byClaim = isAudienceClaim(given.audience) ? given.audience : undefined;
  const audience = isAudienceClaim(given.audience) ? given.audience.values : given.audience;
  const { algorithms = publicKeyAlgorithms, clockToleranceSeconds = 0, requiredClaims = [] } = given;
  const isFunction = typeof issuer === "function";
  const issuers = isFunction ? [] : [issuer].flat();
  const names = isFunction ? "any" : issuers.map((each) => (typeof each === "string" ? each : each?.issuer));
  if (byClaim !== undefined && (typeof byClaim.claim !== "string" || byClaim.claim === "iss"))
    throw invalidOption('the "audience" option must have "claim", which is the name of a claim, and "values"');
  if (given.token !== undefined && dpop !== undefined)
    throw invalidOption('"dpop" requires tokens in the Authorization header; remove "token"');
  checkVerifyOptions({
    keys: () => undefined,
    issuer: names,
    audience,
    algorithms,
    clockToleranceSeconds,
    requiredClaims,
  });
  // Checked here, because an invalid option must be reported immediately, not when an issuer's first token arrives.
  resolveOptions({ ...given.keySet, issuer: "https://login.example.com" });
  for (const own of ["resource", "authorization_servers"])
    if (given.metadata !== undefined && Object.hasOwn(given.metadata, own) && !(isFunction && own !== "resource"))
      throw invalidOption(`"metadata" must not set "${own}"; another option sets it`);
  if (given.metadata !== undefined && resource === undefined)
    throw invalidOption('"metadata" requires "resource", which is the URL that it describes');
  const baseUrl = given.baseUrl ?? (resource && new URL(resource).origin);
  if (dpop !== undefined && baseUrl === undefined)
    throw invalidOption('"dpop" requires "baseUrl", because a proof names the URL and the Host header may be forged');
  return {
    issuers: isFunction ? issuer : issuers,
    /** Maximum time that a proof or a sign-in may be ahead of the clock, in seconds. */
    aheadSeconds: Math.max(clockToleranceSeconds, futureSeconds.accepted),
    verification: {
      audience: withBothSpellings(audience, resource),
      audienceClaim: byClaim?.claim,
      algorithms,
      clockToleranceSeconds,
      requiredClaims,
    },
    scopeClaims: given.scopeClaims ?? ["scope", "scp"],
    maxTokenBytes: given.maxTokenBytes ?? maxTokenBytes,
    // Only the application knows its framework's request type.
    token: given.token as ((request: object) => unknown) | undefined,
    requestId: given.requestId as ((request: object) => unknown) | undefined,
    certificate: given.certificate as ((request: object) => Certificate | Promise<Certificate>) | undefined,
    typ: given.typ ?? "at+jwt",
    maxIssuers: given.maxIssuers ?? 100,
    resource,
    metadata: given.metadata ?? {},
    dpop,
    baseUrl: baseUrl?.replace(/\/$/, ""),
    proofMaxAgeSeconds: given.proofMaxAgeSeconds ?? 60,
    replay: given.replay,
    nonceSecret: given.nonceSecret,
    state: given.state,
    keySet: given.keySet ?? {},
    clock: given.clock ?? systemClock,
    onEvent: given.onEvent,
  };
}

/**
 * If a resource has no path, accepts it with and without a trailing slash, because clients may request either.
 *
 * @see RFC 3986 section 6.2.3; RFC 8707 section 2
 */
function withBothSpellings(audience: string | readonly string[], resource: string | undefined): readonly string[] {
  const given = [audience].flat();
  if (resource === undefined || new URL(resource).pathname !== "/") return given;
  const bare = resource.replace(/\/$/, "");
  const isNamed = given.some((name) => name === bare || name === `${bare}/`);
  return isNamed ? [...new Set([...given, bare, `${bare}/`])] : given;
}

export type BearerSettings = ReturnType<typeof resolveBearerOptions>;
