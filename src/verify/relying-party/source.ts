import { FetchError } from "../../base/errors.ts";
import { jsonOf, memberOf } from "../../base/json.ts";
import { discoveryUrl, shownUrl, wellKnownUrl } from "../../base/urls.ts";
import { type FetchOptions, type Fetched, fetchJson } from "../http-cache/fetch-json.ts";
import { type Freshness, freshness, mayUse } from "../http-cache/freshness.ts";
import {
  type FetchStoredOptions,
  type FetchedResponse,
  fetchStored,
  isRetryable,
} from "../http-cache/stored-response.ts";
import type { KeptKeys, StoredSet } from "./cached-key-set.ts";
import type { KeySetPlace } from "./options.ts";
import { checkSecureUrl, shownIssuer } from "./secure-urls.ts";

export interface SourceOptions extends FetchStoredOptions<KeptKeys> {
  readonly place: KeySetPlace;
  readonly allowInsecure: boolean;
}

// Discovery documents change rarely, and many providers send no caching headers.
const discoveryBounds = {
  minFreshSeconds: 300,
  maxFreshSeconds: 86_400,
  defaultFreshSeconds: 3_600,
  maxStaleSeconds: 0,
  outageToleranceSeconds: 86_400,
};

/** Minimum time between two fetches of a discovery document, except for `refresh`, in milliseconds. */
const recentMs = 60_000;

/** Fetches a JWK Set from a URL, or from the URL in an issuer's discovery document. */
export interface Source {
  /** Makes the next `load` fetch the discovery document, even if it is fresh. */
  lookUpAgain(): void;
  /**
   * Fetches the set. If it is unchanged, it keeps its imported keys. If the last fetch failed, or caches are bypassed
   * for an unknown kid, the set may have moved, so the discovery document is fetched too, at most once a minute.
   *
   * @throws FetchError `ERR_FETCH_BODY`, `ERR_DISCOVERY_ISSUER`, `ERR_URL_INSECURE`, and for the same reasons as
   * `fetchJson`
   */
  load(this: void, stored: StoredSet | undefined, bypassCaches: boolean): Promise<FetchedResponse<KeptKeys>>;
}

export function createSource({ place, allowInsecure, read, ...fetchOptions }: SourceOptions): Source {
  let discovered: ({ readonly url: string; readonly jwksUri: string } & Freshness) | undefined;
  /** Time of the last request for the discovery document, in epoch milliseconds. */
  let lookedUpAt: number | undefined;
  /** Whether the last request for the set failed. */
  let hasFailed = false;

  return {
    lookUpAgain() {
      lookedUpAt = undefined;
    },

    async load(stored, bypassCaches) {
      const jwksUri = place.jwksUri ?? (await discover(place.issuer, bypassCaches));
      hasFailed = true;
      const fetched = await fetchStored(jwksUri, stored, bypassCaches, { ...fetchOptions, read });
      hasFailed = false;
      return fetched;
    },
  };

  async function discover(wanted: string, bypassCaches: boolean): Promise<string> {
    const now = fetchOptions.clock.now();
    if (discovered !== undefined && lookedUpAt !== undefined) {
      const isRecent = lookedUpAt <= now && now < lookedUpAt + recentMs;
      const mayKeep = isRecent ? "outageUntil" : "freshUntil";
      if ((isRecent || !(bypassCaches || hasFailed)) && mayUse(discovered, mayKeep, now)) return discovered.jwksUri;
    }
    lookedUpAt = now;
    const known = discovered !== undefined && mayUse(discovered, "outageUntil", now) ? discovered.url : undefined;
    // An authorization server that does not log users in has its metadata at the second URL.
    const urls = [discoveryUrl(wanted), wellKnownUrl(wanted, "oauth-authorization-server")];
    try {
      const {
        url,
        text = "",
        headers,
      } = await fetchFirst(known === undefined ? urls : [known], { ...fetchOptions, bypassCaches });
      const jwksUri = jwksUriOf(text, wanted, shownUrl(url));
      discovered = { url, jwksUri, ...freshness(headers, now, discoveryBounds) };
      return jwksUri;
    } catch (error) {
      if (
        isRetryable(error) &&
        discovered !== undefined &&
        mayUse(discovered, "outageUntil", fetchOptions.clock.now())
      ) {
        return discovered.jwksUri;
      }
      // An invalid document is not an outage, so an earlier document must not hide it.
      if (!isRetryable(error)) discovered = undefined;
      throw error;
    }
  }

  /**
   * Returns `jwks_uri`, after checking that the document belongs to the issuer.
   *
   * @throws FetchError
   * @see OpenID Connect Discovery 1.0 section 4.3
   */
  function jwksUriOf(text: string, wanted: string, document: string): string {
    const metadata = jsonOf(text);
    if (metadata === undefined) throw new FetchError("ERR_FETCH_BODY", `${document}: the body is not JSON`);
    const issuer = memberOf(metadata, "issuer");
    if (issuer !== wanted) {
      const issuers = `${shownIssuer(issuer)}, not ${shownIssuer(wanted)}`;
      throw new FetchError("ERR_DISCOVERY_ISSUER", `${document}: the document's issuer is ${issuers}`);
    }
    const jwksUri = checkSecureUrl(memberOf(metadata, "jwks_uri"), `jwks_uri of ${document}`, allowInsecure);
    if (wanted.startsWith("https:") && !allowInsecure && !jwksUri.toLowerCase().startsWith("https:")) {
      throw new FetchError(
        "ERR_URL_INSECURE",
        `the jwks_uri of ${document} is not an https URL, even though the issuer is`,
      );
    }
    return jwksUri;
  }
}

/** Returns the first document that exists. @throws FetchError the error for the first URL */
async function fetchFirst(
  [url = "", ...others]: readonly string[],
  options: FetchOptions,
): Promise<Fetched & { readonly url: string }> {
  try {
    return { url, ...(await fetchJson(url, options)) };
  } catch (error) {
    if (others.length === 0 || !(error instanceof FetchError) || error.answered !== 404) throw error;
    return fetchFirst(others, options).catch(() => Promise.reject(error));
  }
}
