import { notify } from "../../base/async.ts";
import { InternalError, KeyMaterialError, TokenError, invalidOption } from "../../base/errors.ts";
import { isLoopback } from "../../base/urls.ts";
import { verificationKeysOnDemand } from "../../keys/jwk/verification-keys.ts";
import { createRemoteSets } from "../client/remote-sets.ts";
import { createBudget } from "../relying-party/budget.ts";
import type { KeySetEvent } from "../relying-party/options.ts";
import { type KeySetParts, type RemoteKeySet, createKeySet } from "../relying-party/remote-key-set.ts";
import { withKeys } from "../relying-party/stored.ts";
import { checkIssuer } from "../relying-party/urls.ts";
import type { KeySource } from "../token/verify.ts";
import type { StateStore, TrustedIssuer } from "./options.ts";
import type { BearerSettings } from "./settings.ts";

/** Finds the keys of an issuer. No request goes to one that is not trusted. @throws TokenError `ERR_TOKEN_CLAIM` */
export type KeysOf = (issuer: string) => Trusted | Promise<Trusted>;

/** The keys of an issuer that is trusted. */
interface Trusted {
  readonly keys: KeySource;
  /** To be called when the keys have verified a token. */
  prove(this: void): void;
  /** Fetches the keys now. */
  readonly refresh?: (this: void) => Promise<void>;
}

export interface TrustedIssuers {
  readonly keysOf: KeysOf;
  /** Fetches the keys of all issuers that are listed. */
  readonly refresh: () => Promise<void>;
}

/** The mean size that JWK Sets may have, if `issuer` is a function: it bounds the memory of all sets together. */
const meanBytes = 65_536;

/** Keeps the key sets of the issuers that the options allow. */
export function createTrustedIssuers(settings: BearerSettings): TrustedIssuers {
  const { issuers, keySet, clock, state, maxIssuers, onEvent } = settings;

  function onKeySetEvent(issuer: string, keys: RemoteKeySet, event: KeySetEvent): void {
    notify(onEvent, { type: "key-set", issuer, event });
    const kept = event.type === "refreshed" ? keys.state() : undefined;
    if (kept === undefined || state === undefined) return;
    asked("set", () => state.set(issuer, kept)).catch((error: InternalError) =>
      notify(onEvent, { type: "key-set", issuer, event: { type: "failed", error } }),
    );
  }
  const partsOf = (issuer: string): KeySetParts =>
    state === undefined ? {} : { loadState: async () => (await asked("get", () => state.get(issuer))) ?? undefined };

  if (typeof issuers !== "function") {
    const listed = new Map(issuers.map((each) => [nameOf(each), open(each)]));
    const byLikeness = new Map([...listed.keys()].map((name) => [likeness(name), name]));
    return {
      keysOf: (issuer) => listed.get(issuer) ?? untrusted(byLikeness.get(likeness(issuer))),
      refresh: async () => void (await Promise.all([...listed.values()].map(async ({ refresh }) => refresh?.()))),
    };
  }

  function open(each: TrustedIssuer): Trusted {
    const issuer = nameOf(each);
    checkIssuer(issuer);
    if (typeof each !== "string" && "keys" in each) return { keys: ownKeys(each.keys), prove() {} };
    const where = typeof each === "string" ? { issuer } : { jwksUri: each.jwksUri };
    const keys: RemoteKeySet = createKeySet(
      { ...keySet, ...where, clock, onEvent: (event) => onKeySetEvent(issuer, keys, event) },
      partsOf(issuer),
    );
    return { keys, prove() {}, refresh: keys.refresh };
  }

  const allowInsecure = keySet.allowInsecure ?? false;
  const sets = createRemoteSets({
    fetch: keySet.fetch ?? ((url, init) => globalThis.fetch(url, init)),
    clock,
    maxKeySets: maxIssuers,
    meanBytes,
    optionsOf: (issuer) => ({ ...keySet, issuer }),
    // Anybody may be an issuer here, and importing a key costs more than reading it.
    partsOf: (issuer) => ({ ...partsOf(issuer), readKeys: withKeys(verificationKeysOnDemand) }),
    newBudget: () => createBudget(),
    emit: ({ name, keys }, event) => onKeySetEvent(name, keys, event),
  });
  return {
    async keysOf(issuer) {
      if (!isIssuer(issuer, allowInsecure) || !(await issuers(issuer))) return untrusted();
      const set = sets.use(issuer);
      return { keys: ({ kid, alg }) => set.keys({ kid, alg }).catch(unusable), prove: () => sets.prove(set) };
    },
    // It is not known which there are.
    async refresh() {},
  };
}

/** jose's `createLocalJWKSet` throws for an unknown kid. @throws ConfigError `ERR_OPTION_INVALID` */
function ownKeys(keys: unknown): KeySource {
  if (typeof keys !== "function")
    throw invalidOption('"keys" of an issuer must be a function, such as a createRemoteKeySet');
  return async (header) => {
    try {
      return await (keys as KeySource)(header);
    } catch (error) {
      if (Object(error).name !== "JWKSNoMatchingKey") throw error;
      throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no key", { cause: error });
    }
  };
}

/** @throws InternalError `ERR_INTERNAL` when a method of the option `state` fails */
async function asked<T>(method: keyof StateStore, ask: () => T | Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (cause) {
    throw new InternalError("ERR_INTERNAL", `state.${method} failed; see the cause`, { cause });
  }
}

/** A key that is imported when a token asks for it may turn out to be none. */
function unusable(error: unknown): never {
  if (!(error instanceof KeyMaterialError)) throw error;
  throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no usable key of the provider");
}

/** @param alike an issuer that is trusted */
function untrusted(alike?: string): never {
  const hint =
    alike && `${JSON.stringify(alike)} is trusted, and differs only by a last slash, or by localhost for 127.0.0.1`;
  throw new TokenError("ERR_TOKEN_CLAIM", "the issuer of the token is not trusted here", { hint });
}

/** The same text for issuers that are easily mistaken for one another. They stay different ones. */
const likeness = (issuer: string): string =>
  issuer.replace(/\/$/, "").replace(/^(http:\/\/)(127\.0\.0\.1|\[::1\])(?![^:/])/, "$1localhost");

const nameOf = (each: TrustedIssuer): string => (typeof each === "string" ? each : each.issuer);

/**
 * Whether a text from a token is an issuer in its one spelling, without query, user name and backslash. The path is whatever the token says, so
 * a function must compare the host.
 *
 * @see OpenID Connect Discovery 1.0 section 4.1
 */
function isIssuer(text: string, allowInsecure: boolean): boolean {
  if (text.length > 1_024 || !URL.canParse(text) || /[?#@\\]/.test(text)) return false;
  const { protocol, hostname, href } = new URL(text);
  const isSafe = protocol === "https:" || (protocol === "http:" && (allowInsecure || isLoopback(hostname)));
  return isSafe && (href === text || href === `${text}/`);
}
