import { notify } from "../../base/async.ts";
import { isLoopback } from "../../base/urls.ts";
import { createRemoteSets } from "../client/remote-sets.ts";
import { createBudget } from "../relying-party/budget.ts";
import type { KeySetEvent } from "../relying-party/options.ts";
import { type GetKey, type RemoteKeySet, createKeySet } from "../relying-party/remote-key-set.ts";
import type { TrustedIssuer } from "./options.ts";
import type { BearerSettings } from "./settings.ts";

/** Finds the keys of an issuer; `undefined` for one that is not trusted, to which no request goes. */
export type KeysOf = (issuer: string) => Trusted | undefined | Promise<Trusted | undefined>;

/** The keys of an issuer that is trusted. */
interface Trusted {
  readonly keys: GetKey;
  /** To be called when they have verified a token. */
  prove(this: void): void;
}

/** Of the issuers that a function allows, what all JWK Sets together may have on average. */
const meanBytes = 65_536;

/** Keeps the key sets of the issuers that the options allow. */
export function createTrustedIssuers(settings: BearerSettings): KeysOf {
  const { issuers, keySet, clock, state, maxIssuers, onEvent } = settings;

  function onKeySetEvent(issuer: string, keys: RemoteKeySet, event: KeySetEvent): void {
    const kept = event.type === "refreshed" ? keys.state() : undefined;
    if (kept !== undefined && state !== undefined) notify(() => state.set(issuer, kept), undefined);
    notify(onEvent, { type: "key-set", issuer, event });
  }
  const partsOf = (issuer: string) =>
    state === undefined ? {} : { loadState: async () => (await state.get(issuer)) ?? undefined };

  if (typeof issuers !== "function") {
    const listed = new Map(issuers.map((each) => [nameOf(each), open(each)]));
    return (issuer) => listed.get(issuer);
  }

  function open(each: TrustedIssuer): Trusted {
    const issuer = nameOf(each);
    const where = typeof each === "string" ? { issuer } : { jwksUri: each.jwksUri };
    const keys: RemoteKeySet = createKeySet(
      { ...keySet, ...where, clock, onEvent: (event) => onKeySetEvent(issuer, keys, event) },
      partsOf(issuer),
    );
    return { keys, prove() {} };
  }

  const fetch = keySet.fetch ?? ((url: string, init: RequestInit) => globalThis.fetch(url, init));
  const allowInsecure = keySet.allowInsecure ?? false;
  const sets = createRemoteSets({
    fetch,
    clock,
    maxKeySets: maxIssuers,
    meanBytes,
    optionsOf: (issuer) => ({ ...keySet, issuer }),
    partsOf,
    newBudget: () => createBudget(),
    emit: ({ name, keys }, event) => onKeySetEvent(name, keys, event),
  });
  return async (issuer) => {
    if (!isIssuer(issuer, allowInsecure) || !(await issuers(issuer))) return undefined;
    const set = sets.use(issuer);
    return { keys: set.keys, prove: () => sets.prove(set) };
  };
}

const nameOf = (each: TrustedIssuer): string => (typeof each === "string" ? each : each.issuer);

/**
 * Whether a text from a token is an issuer in its one spelling. A function that looks at the end of a text, or at its beginning, is then not
 * deceived by a query, a user name or a backslash.
 *
 * @see OpenID Connect Discovery 1.0 section 4.1
 */
function isIssuer(text: string, allowInsecure: boolean): boolean {
  if (text.length > 1_024 || !URL.canParse(text) || /[?#@\\]/.test(text)) return false;
  const { protocol, hostname, href } = new URL(text);
  const isSafe = protocol === "https:" || (protocol === "http:" && (allowInsecure || isLoopback(hostname)));
  return isSafe && (href === text || href === `${text}/`);
}
