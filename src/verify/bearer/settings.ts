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
  textThat,
  texts,
  wholeNumber,
  withMethods,
} from "../../base/options.ts";
import { publicKeyAlgorithms } from "../../keys/crypto/algorithms.ts";
import { futureSeconds } from "../client/claims.ts";
import { keySetRules, resolveOptions } from "../relying-party/options.ts";
import { maxTokenBytes } from "../token/compact-jws.ts";
import { checkVerifyOptions } from "../token/verify.ts";
import { quotable } from "./refusal.ts";
import { requirementRules } from "./requirements.ts";
import type { AudienceClaim, BearerOptions } from "./options.ts";

const url: Rule = textThat("an https URL without query and fragment", (value) => {
  if (!URL.canParse(value) || /[?#]/.test(value)) return false;
  const { protocol, username, password } = new URL(value);
  return /^https?:$/.test(protocol) && username === "" && password === "" && quotable(value) === value;
});

const rules: Rules<BearerOptions> = {
  issuer: required({ ...anything, must: "the issuer whose tokens are accepted" }),
  audience: required({ ...anything, must: "the name of this API in tokens" }),
  typ: oneOf("at+jwt", "JWT"),
  scopeClaims: texts,
  maxTokenBytes: wholeNumber(1, 2 ** 20),
  token: callback,
  requestId: callback,
  algorithms: texts,
  clockToleranceSeconds: clockTolerance,
  requiredClaims: texts,
  maxIssuers: number(1),
  resource: url,
  metadata: {
    must: "an object that JSON can hold",
    types: ["object"],
    holds: (value): value is object => object.holds(value) && isJson(value),
  },
  dpop: oneOf("optional", "required"),
  baseUrl: url,
  proofMaxAgeSeconds: number(1),
  replay: callback,
  nonceSecret: textThat("a string of at least 32 characters", (value) => value.length >= 32),
  certificate: callback,
  state: withMethods("get", "set"),
  keySet: object,
  clock,
  onEvent: callback,
};

function isJson(value: object): boolean {
  try {
    return JSON.stringify(value) !== undefined;
  } catch {
    return false;
  }
}

/** Remedies for options that belong elsewhere. */
const remedies: Readonly<Record<string, string>> = {
  ...Object.fromEntries(Object.keys(keySetRules).map((name) => [name, `write keySet: { ${name} }`])),
  ...Object.fromEntries(
    Object.keys(requirementRules).map((name) => [name, `give it to each route, as in bearer.express({ ${name} })`]),
  ),
  jwksUri: "write issuer: { issuer, jwksUri }",
  keys: "write issuer: { issuer, keys }",
};

/** The options with their defaults. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export function resolveBearerOptions(options: BearerOptions) {
  for (const name of Object.keys(Object(options) as object))
    if (!Object.hasOwn(rules, name) && Object.hasOwn(remedies, name))
      throw new ConfigError("ERR_OPTION_UNKNOWN", `there is no option "${name}"; ${remedies[name]}`);
  const given = checkOptions(options, rules);
  const { issuer, resource, dpop } = given;
  const byClaim = object.holds(given.audience) ? (given.audience as AudienceClaim) : undefined;
  const audience = byClaim === undefined ? (given.audience as string | readonly string[]) : byClaim.values;
  const { algorithms = publicKeyAlgorithms, clockToleranceSeconds = 0, requiredClaims = [] } = given;
  const isFunction = typeof issuer === "function";
  const issuers = isFunction ? [] : [issuer].flat();
  const names = isFunction ? "any" : issuers.map((each) => (typeof each === "string" ? each : each?.issuer));
  if (byClaim !== undefined && (typeof byClaim.claim !== "string" || byClaim.claim === "iss"))
    throw invalidOption('option "audience" must have "claim", the name of a claim, and "values"');
  if (given.token !== undefined && dpop !== undefined)
    throw invalidOption('"dpop" needs tokens in the header Authorization, so take out "token"');
  checkVerifyOptions({
    keys: () => undefined,
    issuer: names,
    audience,
    algorithms,
    clockToleranceSeconds,
    requiredClaims,
  });
  // A wrong option must not wait for the first token of an issuer.
  resolveOptions({ ...given.keySet, issuer: "https://login.example.com" });
  for (const own of ["resource", "authorization_servers"])
    if (given.metadata !== undefined && Object.hasOwn(given.metadata, own) && !(isFunction && own !== "resource"))
      throw invalidOption(`"metadata" may not set "${own}"; another option says it`);
  if (given.metadata !== undefined && resource === undefined)
    throw invalidOption('"metadata" needs "resource", the URL that it describes');
  const baseUrl = given.baseUrl ?? (resource && new URL(resource).origin);
  if (dpop !== undefined && baseUrl === undefined)
    throw invalidOption('"dpop" needs "baseUrl": a proof names the URL, and the header Host may lie');
  return {
    issuers: isFunction ? issuer : issuers,
    /** By which the times of a proof and of a sign-in may lie ahead. */
    aheadSeconds: Math.max(clockToleranceSeconds, futureSeconds.accepted),
    verification: {
      audience: spelled(audience, resource),
      audienceClaim: byClaim?.claim,
      algorithms,
      clockToleranceSeconds,
      requiredClaims,
    },
    scopeClaims: given.scopeClaims ?? ["scope", "scp"],
    maxTokenBytes: given.maxTokenBytes ?? maxTokenBytes,
    token: given.token,
    requestId: given.requestId,
    typ: given.typ ?? "at+jwt",
    maxIssuers: given.maxIssuers ?? 100,
    resource,
    metadata: given.metadata ?? {},
    dpop,
    baseUrl: baseUrl?.replace(/\/$/, ""),
    proofMaxAgeSeconds: given.proofMaxAgeSeconds ?? 60,
    replay: given.replay,
    nonceSecret: given.nonceSecret,
    certificate: given.certificate,
    state: given.state,
    keySet: given.keySet ?? {},
    clock: given.clock ?? systemClock,
    onEvent: given.onEvent,
  };
}

/** A resource without a path has two spellings, and clients ask for either. @see RFC 3986 section 6.2.3; RFC 8707 section 2 */
function spelled(audience: string | readonly string[], resource: string | undefined): readonly string[] {
  const given = [audience].flat();
  if (resource === undefined || new URL(resource).pathname !== "/") return given;
  const bare = resource.replace(/\/$/, "");
  const isNamed = given.some((name) => name === bare || name === `${bare}/`);
  return isNamed ? [...new Set([...given, bare, `${bare}/`])] : given;
}

export type BearerSettings = ReturnType<typeof resolveBearerOptions>;
