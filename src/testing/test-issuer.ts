import { type Clock, systemClock } from "../base/clock.ts";
import { invalidOption } from "../base/errors.ts";
import {
  type Optional,
  type Rules,
  boolean,
  checkOptions,
  object,
  string,
  nonEmptyString,
  withMethods,
} from "../base/options.ts";
import { type HostileName, hostileSet } from "./faulty-sets.ts";
import { answerOf } from "./issuer-responses.ts";
import { type TestAlgorithm, type TestKey, generateTestKey, testAlgorithms } from "./test-keys.ts";
import { type Listening, listen } from "./test-server.ts";
import {
  type Claims,
  type Draft,
  type TestTokenOptions,
  type TokenFault,
  tokenFaults,
  tokenOf,
} from "./token-faults.ts";

/** Options for `createTestIssuer`. */
export interface TestIssuerOptions {
  /**
   * Issuer identifier: the `iss` in the issuer's tokens and the URL that `fetch` serves. Default:
   * `https://issuer.example` or, after `listen`, the server's URL.
   */
  readonly issuer?: Optional<string>;
  /** `aud` in the issuer's tokens. Default: `https://api.example.com`. */
  readonly audience?: Optional<string>;
  /**
   * Algorithms (`ES256`, `RS256`, `PS256`, `EdDSA`), each of which gets its own key. A token is signed with the first
   * one unless a different one is requested for it. Default: `["ES256"]`.
   */
  readonly algorithms?: Optional<readonly TestAlgorithm[]>;
  /** Claims to include in every token, in addition to its usual claims. Default: none. */
  readonly claims?: Optional<Claims>;
  /**
   * Seed for the keys. The same seed results in the same keys in every process. Requires `node:crypto`. Default: new
   * keys.
   */
  readonly seed?: Optional<string>;
  /** Source of the current time. Default: `Date.now()`, so that fake timers work. */
  readonly clock?: Optional<Pick<Clock, "now">>;
  /**
   * Whether the issuer starts even if `NODE_ENV` is `prod` or `production` (in upper or lower case), either alone or
   * followed by anything but a letter, as in `prod-eu`. Default: `false`.
   */
  readonly allowProduction?: Optional<boolean>;
}

/** An issuer for tests. */
export interface TestIssuer {
  /** `iss` in the issuer's tokens. */
  readonly issuer: string;
  /** `aud` in the issuer's tokens. */
  readonly audience: string;
  /**
   * Fetches this issuer's URLs without using the network. Requests for other URLs fail. Use it as the `keySet.fetch`
   * option, or instead of the global `fetch`.
   */
  fetch(this: void, input: string | URL | Request, init?: RequestInit): Promise<Response>;
  /**
   * Serves the issuer over HTTP on 127.0.0.1. If the `issuer` option is not given, the server's URL becomes the issuer.
   */
  listen(this: void, port?: number): Promise<Listening>;
  /**
   * Creates an access token that is valid for five minutes and has `iss`, `aud`, `sub`, `client_id`, `iat`, `exp` and
   * `jti`. `claims` adds to these claims or replaces them. A value of `undefined` omits a claim.
   *
   * @throws ConfigError `ERR_OPTION_INVALID` if a fault or algorithm is unknown
   */
  token(this: void, claims?: Claims, changes?: TestTokenOptions): Promise<string>;
  /** Generates new keys and signs with them from then on. The previous keys stay published until the next rotation. */
  rotate(this: void): Promise<void>;
  /** Makes the issuer stop responding until `goOnline` is called. It still issues tokens, because tests need them. */
  goOffline(this: void): void;
  /** Resumes all responses. */
  goOnline(this: void): void;
}

const rules: Rules<TestIssuerOptions> = {
  issuer: nonEmptyString,
  audience: nonEmptyString,
  algorithms: {
    must: `a non-empty array of ${testAlgorithms.join(", ")}`,
    types: ["array"],
    holds: (value): value is unknown =>
      Array.isArray(value) && value.length > 0 && value.every((alg) => testAlgorithms.includes(alg)),
  },
  claims: object,
  seed: string,
  clock: withMethods("now"),
  allowProduction: boolean,
};

/**
 * Creates an issuer for tests, with its keys in memory.
 *
 * @example
 * ```ts
 * const issuer = await createTestIssuer();
 * const bearer = createBearerGuard({ issuer: issuer.issuer, audience: issuer.audience, keySet: { fetch: issuer.fetch } });
 * const token = await issuer.token({ scope: "orders:read" });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, which is also thrown if `NODE_ENV` is `production`
 */
export async function createTestIssuer(options: TestIssuerOptions = {}): Promise<TestIssuer> {
  const given = checkOptions(options, rules);
  const { audience = "https://api.example.com", algorithms = ["ES256"], seed, clock = systemClock } = given;
  if (inProduction() && given.allowProduction !== true)
    throw invalidOption(
      "a test issuer does not start if NODE_ENV is production; set allowProduction to true if you need one there",
    );
  let issuer = given.issuer ?? "https://issuer.example";
  if (!URL.canParse(issuer)) throw invalidOption('the "issuer" option must be a URL');
  const [preferred = "ES256"] = algorithms;
  let generationCount = 0;
  let isOffline = false;
  const generateKeys = (): Promise<TestKey[]> => {
    generationCount += 1;
    return Promise.all(algorithms.map((alg) => generateTestKey(alg, seed && `${alg} ${generationCount} ${seed}`)));
  };
  /** Generations of keys, latest first. Tokens are signed with the first generation. */
  const generations = [await generateKeys()];
  const published = (): readonly TestKey[] => generations.slice(0, 2).flat();
  const keyAt = async (generation: number, alg: TestAlgorithm): Promise<TestKey> =>
    generations[generation]?.find((key) => key.alg === alg) ?? generateTestKey(alg);

  async function token(claims: Claims = {}, changes: TestTokenOptions = {}): Promise<string> {
    const { alg = preferred, header, ...faults } = changes;
    if (!algorithms.includes(alg))
      throw invalidOption(`this issuer has no ${alg} key; add ${alg} to the "algorithms" option`);
    const keys = { active: await keyAt(0, alg), removed: () => keyAt(2, alg), stranger: () => generateTestKey(alg) };
    const now = Math.floor(clock.now() / 1000);
    const defaults = { iss: issuer, aud: audience, sub: "alice", client_id: "app", iat: now, exp: now + 300 };
    const draft: Draft = {
      header: { alg, kid: keys.active.kid, typ: "at+jwt", ...header },
      claims: { ...defaults, jti: crypto.randomUUID(), ...given.claims, ...claims },
      sign: keys.active.sign,
    };
    for (const [name, isOn] of Object.entries(faults)) {
      if (!Object.hasOwn(tokenFaults, name))
        throw invalidOption(
          `there is no fault ${JSON.stringify(name)}; use one of: ${Object.keys(tokenFaults).join(", ")}`,
        );
      if (isOn) Object.assign(draft, await tokenFaults[name as TokenFault].change(draft, keys, now));
    }
    return tokenOf(draft);
  }

  const isHidden = ({ url }: Request): boolean => isOffline && !new URL(url).pathname.endsWith("/token");
  const respond = (request: Request): Promise<Response> =>
    answerOf(request, {
      issuer,
      algorithms,
      token,
      keys: () => published().map(({ jwk }) => jwk),
      hostile: (name: HostileName) => hostileSet(name, generations[0]?.[0] as TestKey),
    });

  return Object.freeze({
    get issuer() {
      return issuer;
    },
    audience,
    async fetch(input, init) {
      const request = new Request(input, init);
      request.signal.throwIfAborted();
      const isOwn = request.url === issuer || request.url.startsWith(issuer.replace(/\/?$/, "/"));
      const isUnreachable = isHidden(request);
      if (isUnreachable || !isOwn) {
        const why = isUnreachable ? "the test issuer is offline" : `the test issuer serves only ${issuer}`;
        throw new TypeError("fetch failed", { cause: new Error(why) });
      }
      return respond(request);
    },
    async listen(port = 0) {
      const { hostname } = new URL(issuer);
      const listening = await listen(port, hostname, async (request) =>
        isHidden(request) ? undefined : respond(request),
      );
      if (given.issuer === undefined) issuer = listening.url;
      return listening;
    },
    token,
    async rotate() {
      generations.unshift(await generateKeys());
    },
    goOffline() {
      isOffline = true;
    },
    goOnline() {
      isOffline = false;
    },
  } satisfies TestIssuer);
}

function inProduction(): boolean {
  try {
    return /^\s*prod(uction)?(?![a-z])/i.test(globalThis.process?.env["NODE_ENV"] ?? "");
  } catch {
    // Deno denies access to it without --allow-env.
    return false;
  }
}
