import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../../base/clock.ts";
import { ConfigError, FetchError, invalidOption } from "../../base/errors.ts";
import {
  type Rules,
  array,
  boolean,
  checkOptions,
  nonEmptyString,
  object,
  oneOf,
  required,
  strings,
} from "../../base/options.ts";
import { type Guard, createGuard } from "../../verify/bearer/access-decision.ts";
import {
  type CheckedRequirements,
  type Requirements,
  checkRequirements,
  requirementRules,
} from "../../verify/bearer/requirements.ts";
import { bearerRules, resolveBearerOptions } from "../../verify/bearer/settings.ts";
import type { BearerGuardOptions } from "../../verify/bearer/types.ts";
import type { RemoteKeySet, RemoteKeySetOptions } from "../../verify/relying-party/index.ts";
import { keySetRules } from "../../verify/relying-party/options.ts";
import { type IdentityHeader, identityOf } from "./identity-headers.ts";
import { type UseKeySet, nameOf } from "./key-sets.ts";
import { type RoutePattern, hiddenRoute, methods, patternOf } from "./paths.ts";
import { canonicalHost } from "./proxy-conventions.ts";

/** The options of `createBearerGuard` that a file can set for one issuer's tokens. */
const tokenNames = [
  "audience",
  "typ",
  "scopeClaims",
  "algorithms",
  "requiredClaims",
  "clockToleranceSeconds",
  "maxTokenBytes",
  "dpop",
  "proofMaxAgeSeconds",
  "baseUrl",
  "resource",
  "keySet",
] as const;
const keySetNames = [
  "allowInsecure",
  "timeoutMs",
  "minFreshSeconds",
  "maxFreshSeconds",
  "outageToleranceSeconds",
  "maxWaitMs",
] as const;

/** Settings for one issuer's tokens. */
interface IssuerMembers extends Pick<BearerGuardOptions, (typeof tokenNames)[number]> {
  readonly issuer: string;
  readonly jwksUri?: string;
}

interface RouteMembers extends Omit<Requirements, "check"> {
  readonly path: string;
  readonly methods?: readonly string[];
  readonly public?: boolean;
  readonly cors?: "pass";
  readonly encodedSlashes?: boolean;
}

interface HostMembers {
  readonly issuers?: readonly IssuerMembers[];
  readonly claims?: readonly string[];
  readonly cors?: "pass";
  readonly routes: readonly RouteMembers[];
}

/** A route and its requirements. */
export interface Route extends RoutePattern {
  /** Path as configured. */
  readonly path: string;
  /** Requirements for requests to the route; `undefined` for a public route. */
  readonly requirements: CheckedRequirements | undefined;
  /** Whether preflights pass without a token. */
  readonly passesPreflights: boolean;
}

/** The guard for one issuer's tokens. */
export interface IssuerGuard {
  readonly issuer: string;
  readonly guard: Guard;
}

/** A host, with its guards and routes. */
export interface Host {
  /** One guard for each issuer. There is at least one, unless all routes are public. */
  readonly guards: readonly IssuerGuard[];
  readonly routes: readonly Route[];
  readonly identity: readonly IdentityHeader[];
  /** Whether any route depends on the method. */
  readonly hasMethods: boolean;
  /** Whether tokens may be bound to a client's key. */
  readonly usesProofs: boolean;
}

/** All hosts, keyed by name. `*` applies to every other host. */
export type Hosts = ReadonlyMap<string, Host>;

/** Options that all guards share. */
export interface SharedOptions extends Pick<BearerGuardOptions, "replay" | "nonceSecret" | "certificate"> {
  readonly clock: Clock;
}

/** Returns the rules for some of the options. */
const pick = <Options, Name extends keyof Options>(rules: Rules<Options>, names: readonly Name[]) =>
  Object.fromEntries(names.map((name) => [name, rules[name]])) as Rules<Pick<Options, Name>>;

const issuerRules: Rules<IssuerMembers> = {
  issuer: required(nonEmptyString),
  jwksUri: nonEmptyString,
  ...pick(bearerRules, tokenNames),
};
const keySetFileRules = pick(keySetRules, keySetNames);
const { check: _, ...tokenRules } = requirementRules;
const corsRule = oneOf("pass");
const routeRules: Rules<RouteMembers> = {
  ...tokenRules,
  path: required(nonEmptyString),
  methods: {
    ...strings,
    must: "a non-empty array of HTTP methods in upper case, except CONNECT",
    holds: (value): value is string[] =>
      strings.holds(value) && value.length > 0 && value.every((method) => methods.includes(method)),
  },
  public: boolean,
  cors: corsRule,
  encodedSlashes: boolean,
};
const hostRules: Rules<HostMembers> = {
  issuers: array,
  claims: strings,
  cors: corsRule,
  routes: required(array),
};

/**
 * Builds a configuration's hosts.
 *
 * @param members the `hosts` member of the configuration
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function hostsOf(members: unknown, use: UseKeySet, shared: SharedOptions): Hosts {
  if (!object.holds(members) || Object.keys(members).length === 0)
    throw invalidOption('"hosts" must be an object with a member for each host; add one');
  const useOnce = oncePerName(use);
  return new Map(
    Object.entries(members).map(([name, given]) => {
      const quoted = JSON.stringify(name);
      const canonical = name === "*" ? name : canonicalHost(name);
      if (canonical === undefined)
        throw invalidOption(`host ${quoted} must be either * or a lowercase host name without a port or slashes`);
      if (canonical !== name) throw invalidOption(`host ${quoted} is not in canonical form; write "${canonical}"`);
      return [name, within(`host ${quoted}`, () => hostOf(name, given as HostMembers, useOnce, shared))];
    }),
  );
}

/**
 * Wraps a function so that it is called once per issuer or URL.
 *
 * @throws ConfigError `ERR_OPTION_INVALID` if the options for one issuer or URL differ
 */
function oncePerName(use: UseKeySet): UseKeySet {
  const used = new Map<string, { readonly options: RemoteKeySetOptions; readonly keys: RemoteKeySet }>();
  return (options) => {
    const name = nameOf(options);
    const one = used.get(name) ?? { options, keys: use(options) };
    if (!isDeepStrictEqual(one.options, options))
      throw invalidOption(
        `the "keySet" of ${name} differs from the "keySet" given for it elsewhere; use the same settings in both places`,
      );
    used.set(name, one);
    return one.keys;
  };
}

/** Runs a function. If the function throws, adds the subject to the message. */
function within<T>(subject: string, build: () => T): T {
  try {
    return build();
  } catch (error) {
    if (!(error instanceof ConfigError || error instanceof FetchError)) throw error;
    throw new ConfigError("ERR_OPTION_INVALID", `${subject}: ${error.message}`, { cause: error });
  }
}

function hostOf(name: string, members: HostMembers, use: UseKeySet, shared: SharedOptions): Host {
  const { issuers = [], claims = [], cors, ...given } = checkOptions(members, hostRules, "member");
  const routes = given.routes.map((route, index) =>
    within(`route ${index + 1}`, () => routeOf(route, cors ?? undefined)),
  );
  if (routes.length === 0) throw invalidOption('"routes" is empty, so every request would be refused; add a route');
  const hidden = hiddenRoute(routes);
  if (hidden !== undefined)
    throw invalidOption(
      `route ${hidden[0] + 1} never applies, because route ${hidden[1].map((by) => by + 1).join(" or ")} matches first; move route ${hidden[0] + 1} before that route`,
    );
  const baseUrl = name === "*" ? undefined : `https://${name}`;
  const guards = issuers.map((issuer, index) =>
    within(`issuer ${index + 1}`, () => guardOf(issuer, use, { baseUrl, ...shared })),
  );
  const names = guards.map(({ issuer }) => issuer);
  if (new Set(names).size < names.length) throw invalidOption("an issuer is listed twice; list it once");
  if (guards.length === 0 && routes.some(({ requirements }) => requirements !== undefined))
    throw invalidOption('"issuers" is missing, but a route is not public; list the issuers whose tokens are accepted');
  return {
    guards,
    routes,
    identity: identityOf(claims),
    // A preflight passes without a token.
    hasMethods: routes.some(({ methods, passesPreflights }) => methods !== undefined || passesPreflights),
    usesProofs: issuers.some(({ dpop }) => typeof dpop === "string"),
  };
}

function guardOf(
  members: IssuerMembers,
  use: UseKeySet,
  shared: Omit<BearerGuardOptions, "issuer" | "audience">,
): IssuerGuard {
  const { issuer, jwksUri, keySet = {}, ...tokens } = checkOptions(members, issuerRules, "member");
  const where = jwksUri === undefined ? { issuer } : { jwksUri };
  const keys = use({ ...checkOptions(keySet, keySetFileRules, 'member of "keySet"'), ...where });
  return { issuer, guard: createGuard(resolveBearerOptions({ ...shared, ...tokens, issuer: { issuer, keys } })) };
}

function routeOf(members: RouteMembers, hostCors: "pass" | undefined): Route {
  const {
    path,
    methods,
    public: isPublic = false,
    cors,
    encodedSlashes,
    ...tokens
  } = checkOptions(members, routeRules, "member");
  const pattern = patternOf(path);
  if (pattern === undefined)
    throw invalidOption(
      '"path" must be a path that the guard accepts, such as /orders, or a path with /* at its end, such as /orders/*',
    );
  if (isPublic && (encodedSlashes === true || Object.keys(tokens).length > 0))
    throw invalidOption(
      '"public" lets every request through; remove "public", or remove encodedSlashes and the token requirements',
    );
  return {
    ...pattern,
    path,
    methods,
    encodedSlashes,
    requirements: isPublic ? undefined : checkRequirements(tokens),
    passesPreflights: (cors ?? hostCors) === "pass",
  };
}
