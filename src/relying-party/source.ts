import { FetchError } from "../errors.ts";
import { type FetchOptions, fetchJson } from "./fetch-json.ts";
import { type Freshness, ageSeconds, freshness, mayUse } from "./freshness.ts";
import { type ReadKeys, type StoredSet, isOutdated, storedSet } from "./stored.ts";
import { checkUrl, shownIssuer, shownUrl } from "./urls.ts";

export interface SourceOptions extends Omit<FetchOptions, "etag" | "bypassCaches"> {
  readonly issuer: string | undefined;
  readonly jwksUri: string | undefined;
  readonly allowInsecure: boolean;
  readonly readKeys: ReadKeys;
}

/** What a request for the JWK Set gave: the set that is stored from now on. */
export interface Loaded {
  readonly set: StoredSet;
  readonly status: 200 | 304;
  /** How long a cache on the way had kept the response. */
  readonly ageSeconds: number;
}

// A discovery document changes rarely, and its provider may be older than these rules.
const discoveryBounds = {
  minFreshSeconds: 300,
  maxFreshSeconds: 86_400,
  defaultFreshSeconds: 3_600,
  maxStaleSeconds: 0,
  outageToleranceSeconds: 86_400,
};

/** A discovery document is not asked for again within so long, unless `refresh` wants it. */
const recentMs = 60_000;

/** Where a JWK Set comes from: a URL, or the discovery document of an issuer. */
export function createSource({ issuer, jwksUri: fixedUri, allowInsecure, readKeys, ...fetchOptions }: SourceOptions) {
  let discovered: ({ readonly jwksUri: string } & Freshness) | undefined;
  /** When the discovery document was asked for last. */
  let lookedUpAt: number | undefined;
  /** Whether the last request for the set failed. */
  let hasFailed = false;

  return {
    /** Has the discovery document asked for again, however fresh it is. */
    lookUpAgain(): void {
      lookedUpAt = undefined;
    },

    /**
     * Asks for the set; one that has not changed keeps its imported keys. After a failure, or past all caches, it may be elsewhere
     * by now, so the discovery document is looked up again if that was more than a minute ago.
     *
     * @throws FetchError see `fetchJson`, and `ERR_FETCH_BODY`, `ERR_DISCOVERY_ISSUER`, `ERR_URL_INSECURE`
     */
    async load(stored: StoredSet | undefined, bypassCaches: boolean): Promise<Loaded> {
      const jwksUri = fixedUri ?? (await discover(issuer as string, bypassCaches));
      const known = stored?.jwksUri === jwksUri ? stored : undefined;
      hasFailed = true;
      let loaded = await loadFrom(jwksUri, known, bypassCaches);
      // It must not bring back a key that the origin has taken away since.
      if (!bypassCaches && isOutdated(loaded.set, known)) loaded = await loadFrom(jwksUri, known, true);
      hasFailed = false;
      return loaded;
    },
  };

  async function loadFrom(jwksUri: string, known: StoredSet | undefined, bypassCaches: boolean): Promise<Loaded> {
    const requestedAt = fetchOptions.clock.now();
    const { text, etag, headers } = await fetchJson(jwksUri, { ...fetchOptions, etag: known?.etag, bypassCaches });
    const status = text === undefined ? 304 : 200;
    if (known === undefined || (text !== undefined && text !== known.body)) {
      const state = { issuer, jwksUri, body: text ?? "", etag, headers, requestedAt };
      const set = await storedSet(state, readKeys);
      return { set, status, ageSeconds: ageSeconds(headers) };
    }
    // What a 304 says replaces what was stored, field by field. RFC 9111 section 4.3.4
    const { cacheControl = known.headers.cacheControl, expires = known.headers.expires } = headers;
    const updated = status === 304 ? { ...headers, cacheControl, expires } : headers;
    // The tag of another body would hide that body from every request to come.
    const isTagOfBody = etag !== undefined && (status === 200 || opaqueTag(etag) === opaqueTag(known.etag));
    const set = { ...known, etag: isTagOfBody ? etag : known.etag, headers: updated, requestedAt };
    return { set, status, ageSeconds: ageSeconds(headers) };
  }

  async function discover(wanted: string, bypassCaches: boolean): Promise<string> {
    const now = fetchOptions.clock.now();
    if (discovered !== undefined && lookedUpAt !== undefined) {
      const isRecent = lookedUpAt <= now && now < lookedUpAt + recentMs;
      const mayKeep = isRecent ? "outageUntil" : "freshUntil";
      if ((isRecent || !(bypassCaches || hasFailed)) && mayUse(discovered, mayKeep, now)) return discovered.jwksUri;
    }
    lookedUpAt = now;
    try {
      const url = `${wanted.replace(/\/$/, "")}/.well-known/openid-configuration`;
      const { text = "", headers } = await fetchJson(url, { ...fetchOptions, bypassCaches });
      const jwksUri = jwksUriOf(text, wanted, shownUrl(url));
      discovered = { jwksUri, ...freshness(headers, now, discoveryBounds) };
      return jwksUri;
    } catch (error) {
      if (isOutage(error) && discovered !== undefined && mayUse(discovered, "outageUntil", now)) {
        return discovered.jwksUri;
      }
      throw error;
    }
  }

  /** @see OpenID Connect Discovery 1.0 section 4.3 (the issuer must be exactly the one that was asked for) */
  function jwksUriOf(text: string, wanted: string, document: string): string {
    let metadata: { issuer?: unknown; jwks_uri?: unknown } | null;
    try {
      metadata = JSON.parse(text) as typeof metadata;
    } catch {
      throw new FetchError("ERR_FETCH_BODY", `${document}: the body is not JSON`);
    }
    if (metadata?.issuer !== wanted) {
      const issuers = `${shownIssuer(metadata?.issuer)} and not ${shownIssuer(wanted)}`;
      throw new FetchError("ERR_DISCOVERY_ISSUER", `${document}: it is the document of another issuer, ${issuers}`);
    }
    const jwksUri = checkUrl(metadata.jwks_uri, `jwks_uri of ${document}`, allowInsecure);
    if (wanted.startsWith("https:") && !allowInsecure && !jwksUri.toLowerCase().startsWith("https:")) {
      throw new FetchError("ERR_URL_INSECURE", `jwks_uri of ${document} is not an https URL, and the issuer is`);
    }
    return jwksUri;
  }
}

/**
 * Whether an error is a failure to retrieve, through which what is stored may be used. A discovery document of another issuer, or with
 * a URL that is not secure, is none: it was retrieved, and no time mends the configuration that led to it.
 */
export function isOutage(error: unknown): boolean {
  return error instanceof FetchError && error.retryable;
}

/** An ETag without its mark of weakness. @see RFC 9110 section 8.8.3 */
function opaqueTag(etag: string | undefined): string | undefined {
  return etag?.replace(/^W\//, "");
}
