import { notify } from "../../base/async.ts";
import { InternalError, KeyMaterialError, TokenError, invalidOption } from "../../base/errors.ts";
import { isLoopback } from "../../base/urls.ts";
import { verificationKeysOnDemand } from "../../keys/jwk/verification-keys.ts";
import { createBudget } from "../http-cache/request-budget.ts";
import { limitRequests } from "../http-cache/throttled-fetch.ts";
import { withKeys } from "../relying-party/cached-key-set.ts";
import type { KeySetEvent } from "../relying-party/options.ts";
import { type InternalOptions, type RemoteKeySet, createKeySet } from "../relying-party/remote-key-set.ts";
import { createRemoteSets } from "../relying-party/remote-sets.ts";
import { checkIssuer } from "../relying-party/secure-urls.ts";
import type { KeyResolver } from "../token/verify.ts";
import type { BearerSettings } from "./settings.ts";
import type { KeySetStateStore, TrustedIssuer } from "./types.ts";

/**
 * Returns an issuer's keys. Never sends a request to an issuer that is not trusted.
 *
 * @throws TokenError `ERR_TOKEN_CLAIM`
 */
export type KeysOf = (issuer: string) => Trusted | Promise<Trusted>;

/** A trusted issuer's keys. */
interface Trusted {
  readonly keys: KeyResolver;
  /** Records that a token has been verified with the keys. */
  prove(this: void): void;
  /** Fetches the keys immediately. */
  readonly refresh?: (this: void) => Promise<void>;
}

export interface TrustedIssuers {
  readonly keysOf: KeysOf;
  /** Fetches the keys of all listed issuers. */
  readonly refresh: () => Promise<void>;
}

/**
 * Maximum average size of the JWK Sets, in bytes, if `issuer` is a function. It limits the total memory that all sets
 * use.
 */
const meanSetBytes = 65_536;

/** Creates the key sets for the issuers that the options trust. */
export function createTrustedIssuers(settings: BearerSettings): TrustedIssuers {
  const { issuers, keySet, clock, state, maxIssuers, onEvent } = settings;

  function onKeySetEvent(issuer: string, keys: RemoteKeySet, event: KeySetEvent): void {
    notify(onEvent, { type: "key-set", issuer, event });
    const kept = event.type === "refreshed" ? keys.state() : undefined;
    if (kept === undefined || state === undefined) return;
    callState("set", () => state.set(issuer, kept)).catch((error: InternalError) =>
      notify(onEvent, { type: "key-set", issuer, event: { type: "failed", error } }),
    );
  }
  const internalOf = (issuer: string): InternalOptions =>
    state === undefined
      ? {}
      : { loadState: async () => (await callState("get", () => state.get(issuer))) ?? undefined };

  if (typeof issuers !== "function") {
    const listed = new Map<string, Trusted>();
    for (const each of issuers) {
      const name = issuerOf(each);
      if (listed.has(name)) {
        const remedy = 'list it once, and set its "keys" to a function that searches both sets';
        throw invalidOption(`issuer ${JSON.stringify(name)} is listed twice; ${remedy}`);
      }
      listed.set(name, open(each));
    }
    return {
      keysOf: (issuer) => listed.get(issuer) ?? untrusted(trustedText([...listed.keys()])),
      refresh: async () => void (await Promise.all([...listed.values()].map(async ({ refresh }) => refresh?.()))),
    };
  }

  function open(each: TrustedIssuer): Trusted {
    const issuer = issuerOf(each);
    checkIssuer(issuer);
    if (typeof each !== "string" && "keys" in each) return ownKeys(each.keys);
    const where = typeof each === "string" ? { issuer } : { jwksUri: each.jwksUri };
    const { keys }: { readonly keys: RemoteKeySet } = createKeySet(
      { ...keySet, ...where, clock, onEvent: (event) => onKeySetEvent(issuer, keys, event) },
      internalOf(issuer),
    );
    return { keys, prove() {}, refresh: keys.refresh };
  }

  const allowInsecure = keySet.allowInsecure ?? false;
  const sets = createRemoteSets({
    fetch: limitRequests({ fetch: keySet.fetch ?? ((url, init) => globalThis.fetch(url, init)), clock }),
    clock,
    maxKeySets: maxIssuers,
    meanBytes: meanSetBytes,
    optionsOf: (issuer) => ({ ...keySet, issuer }),
    // Anyone can run an issuer that the function accepts, and importing a key costs more than reading it.
    internalOf: (issuer) => ({ ...internalOf(issuer), readKeys: withKeys(verificationKeysOnDemand) }),
    newBudget: () => createBudget(),
    emit: onKeySetEvent,
  });
  return {
    async keysOf(issuer) {
      if (!isCanonicalIssuer(issuer, allowInsecure))
        return untrusted('it is not an https URL in canonical form, so the "issuer" function was not called');
      if (!(await issuers(issuer))) return untrusted('the "issuer" function did not accept it');
      const set = sets.use(issuer);
      return { keys: ({ kid, alg }) => set.resource.keys({ kid, alg }).catch(unusable), prove: () => sets.prove(set) };
    },
    // There is nothing to fetch, because the issuers are not known in advance.
    async refresh() {},
  };
}

/** Methods that fetch the keys: `refresh` in our `createRemoteKeySet` and `reload` in jose's `createRemoteJWKSet`. */
interface Refreshable {
  readonly refresh?: () => Promise<void>;
  readonly reload?: () => Promise<void>;
}

/** Returns the keys from an application's own key source. @throws ConfigError `ERR_OPTION_INVALID` */
function ownKeys(keys: KeyResolver & Refreshable): Trusted {
  if (typeof keys !== "function")
    throw invalidOption('an issuer\'s "keys" must be a function, such as the result of createRemoteKeySet()');
  return {
    async keys(header) {
      try {
        return await keys(header);
      } catch (error) {
        // jose throws for an unknown kid.
        if (Object(error).name !== "JWKSNoMatchingKey") throw error;
        throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "no key has the token's kid", { cause: error });
      }
    },
    prove() {},
    refresh: async () => (keys.refresh ?? keys.reload)?.(),
  };
}

/** Calls a method of the `state` option. @throws InternalError `ERR_INTERNAL` */
async function callState<T>(method: keyof KeySetStateStore, call: () => T | Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (cause) {
    throw new InternalError("ERR_INTERNAL", `state.${method} failed; see the cause`, { cause });
  }
}

/**
 * Rejects a token whose key turned out to be invalid when it was imported.
 *
 * @throws TokenError `ERR_TOKEN_KID_UNKNOWN`
 */
function unusable(error: unknown): never {
  if (!(error instanceof KeyMaterialError)) throw error;
  throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "the token's kid does not match any of the provider's usable keys");
}

function untrusted(hint: string): never {
  throw new TokenError("ERR_TOKEN_CLAIM", "the token's issuer is not trusted here", { hint });
}

const maxNamed = 5;

/** Lists the trusted issuers, so that the operator can compare them with the token's issuer. */
function trustedText(names: readonly string[]): string {
  const trusted = names.slice(0, maxNamed).map((name) => JSON.stringify(name));
  if (names.length > maxNamed) trusted.push(`${names.length - maxNamed} more`);
  return `iss must be exactly ${trusted.join(" or ")}`;
}

const issuerOf = (each: TrustedIssuer): string => (typeof each === "string" ? each : each.issuer);

/**
 * Reports whether a string from a token is an issuer in canonical form, without a query, user name or backslash. Its
 * path can be anything, so the application's function must compare the host.
 *
 * @see OpenID Connect Discovery 1.0 section 4.1
 */
function isCanonicalIssuer(issuer: string, allowInsecure: boolean): boolean {
  if (issuer.length > 1_024 || !URL.canParse(issuer) || /[?#@\\]/.test(issuer)) return false;
  const { protocol, hostname, href } = new URL(issuer);
  const isSafe = protocol === "https:" || (protocol === "http:" && (allowInsecure || isLoopback(hostname)));
  return isSafe && (href === issuer || href === `${issuer}/`);
}
