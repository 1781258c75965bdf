import type { CryptoKey } from "jose";
import { notify, serial } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { ConfigError, JwksdError, SignerError, TokenError } from "../../base/errors.ts";
import { toResponse } from "../http/fetch.ts";
import { type NodeRequest, type NodeResponse, writeReply } from "../http/node.ts";
import {
  type CacheMode,
  type Reply,
  type Representation,
  cacheControl,
  methodNotAllowed,
  notFound,
  represent,
  respond,
  withoutBodyOnHead,
} from "../http/respond.ts";
import { type Document, makeDocument, makeDocuments } from "../../keys/keyset/document.ts";
import {
  type CheckedKeysets,
  type EncryptionKeyset,
  type Keyset,
  checkEncryption,
  checkKeyset,
  checkSigning,
  checkUnique,
} from "../../keys/keyset/keyset.ts";
import { type Metric, gauge, plain } from "../../base/metrics.ts";
import {
  type ActiveKey,
  type Claims,
  type SignOptions,
  type SignedPayload,
  signPayload,
  signToken,
} from "../token/sign.ts";
import { type KeySource, type VerifiedToken, type VerifyOptions, verify } from "../token/verify.ts";
import { createActiveKeys } from "./active-keys.ts";
import { discoveryDocument } from "./discovery.ts";
import { type Rules, array, checkOptions, string } from "../../base/options.ts";
import { targetPath } from "../../base/urls.ts";
import { type ProviderEvent, type ProviderOptions, mergeOptions } from "./options.ts";
import { locate } from "./paths.ts";
import { optionsOf } from "./managed-keys.ts";
import { createResponses, documents } from "./responses.ts";
import { createRetiredKids } from "./retired-kids.ts";
import { rotationMode } from "./rotation-mode.ts";
import { type SigningKey, signingKey } from "./signing-key.ts";

/** Keysets for `provider.update`. A keyset that is not given stays as it is. */
export interface KeysetUpdate {
  /** New signing keys, the active one first. */
  readonly keyset?: Keyset | null | undefined;
  /** New encryption keys; `[]` removes all. */
  readonly encryptionKeyset?: EncryptionKeyset | null | undefined;
}

/** Serves the JWK Set and the discovery document of an OpenID provider, signs its tokens and verifies them. */
export interface Provider {
  /** The issuer identifier. */
  readonly issuer: string;
  /** Absolute URL of the JWK Set, for the discovery document. */
  readonly jwksUri: string;
  /** Answers a web-standard request; 404 for other paths. */
  fetch(this: void, request: Request): Response;
  /** Answers a request of `node:http`, Express or Connect. For other paths, calls `next` if it is given, else answers 404. */
  node(this: void, request: NodeRequest, response: NodeResponse, next?: () => void): void;
  /**
   * Replaces one keyset or both in one step. On an error, the old keysets stay in use. Calls take effect in their order.
   *
   * @throws KeyMaterialError see `createProvider`
   */
  update(this: void, change: KeysetUpdate): Promise<void>;
  /**
   * Signs claims with the active key, always ES256, and sets `iss`, `iat` and `exp` where they are not given.
   *
   * @throws TokenError `ERR_CLAIMS_INVALID`
   * @throws SignerError `ERR_SIGNER_THROTTLED`, `ERR_SIGNER_UNAVAILABLE`, `ERR_SIGNER_TIMEOUT`, `ERR_SIGNER_BUSY` (all `retryable`),
   * `ERR_SIGNER_UNAUTHORIZED`, `ERR_SIGNER_KEY_STATE`, `ERR_SIGNER_ABORTED`, `ERR_SIGNER_BAD_SIGNATURE`, `ERR_SIGNER_PUBLISH_ONLY`
   */
  sign(this: void, claims: Claims, options: SignOptions): Promise<string>;
  /**
   * The active key, for a library that writes the header of a token itself and takes the signature alone. Take it anew for each request:
   * once another key is active, it signs no more, but for the drain of a key manager. Where you can, use `sign`: the header of such a
   * library may name a key that was replaced while it made the claims, and its token then fails.
   *
   * @param options with a `clientId`, the keys are those of a client: `iss` is then that id, in the place of the issuer
   */
  signingKey(this: void, options?: { readonly clientId?: string | undefined }): SigningKey;
  /**
   * Verifies a token of this provider with the published key of its kid. An unknown kid is an error: no other key is tried. If a key had this
   * kid that was removed or revoked, an event tells.
   *
   * @throws TokenError see `verify`
   */
  verify(
    this: void,
    token: string,
    options: Omit<VerifyOptions, "keys" | "issuer" | "algorithms" | "clock">,
  ): Promise<VerifiedToken>;
  /** What it has answered and signed since it was made, and the mode; for each scrape. See docs/metrics.md. */
  metrics(this: void): readonly Metric[];
}

/** A provider for sign sockets, one of which gets payloads that somebody else has composed. */
export interface PayloadProvider extends Provider {
  /** Signs a payload as it is, under the `typ` JWT; its claims are the caller's to check. @throws TokenError, SignerError as `sign` does */
  signPayload(this: void, payload: string): Promise<SignedPayload>;
}

const updateRules: Rules<KeysetUpdate> = { keyset: array, encryptionKeyset: array };

/** Everything that is derived from the keysets. An update replaces it in one step. */
interface State {
  readonly keysets: CheckedKeysets;
  /** In order of time. Each is served until `until` (epoch milliseconds), then the next one. */
  readonly jwkSets: (Readonly<Record<CacheMode, Representation>> & { readonly until: number })[];
  readonly active: ActiveKey;
  readonly verificationKeys: ReadonlyMap<string, CryptoKey>;
}

/**
 * Makes a provider from its options, merged left to right. All options and keys are checked before the first request. With `keys`, it follows
 * a key manager.
 *
 * It is asynchronous because Web Crypto is, the only cryptography on every runtime. It checks everything, so that no request has to wait.
 *
 * @example
 * ```ts
 * const provider = await createProvider({ keys: manager });
 * createServer(provider.node).listen(3000);
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`, `ERR_PATH_INVALID`, `ERR_PATH_CLASH`,
 * `ERR_METADATA_RESERVED`
 * @throws KeyMaterialError `ERR_KEYSET_EMPTY`, `ERR_KID_INVALID`, `ERR_KID_DUPLICATE`, `ERR_KEY_DUPLICATE`,
 * `ERR_KEY_IN_BOTH_KEYSETS`, `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_PURPOSE`,
 * `ERR_ALG_UNSUPPORTED`, `ERR_PRIVATE_KEY_MISSING`, `ERR_NOT_AFTER_INVALID`
 */
export async function createProvider(...options: readonly (ProviderOptions | null | undefined)[]): Promise<Provider> {
  const { signPayload: _, ...provider } = await createPayloadProvider(...options);
  return Object.freeze(provider);
}

/** {@link createProvider} for sign sockets. */
export async function createPayloadProvider(
  ...options: readonly (ProviderOptions | null | undefined)[]
): Promise<PayloadProvider> {
  const given = mergeOptions(options);
  const { keys } = given;
  const merged = keys === undefined ? given : mergeOptions([optionsOf(keys, given)]);
  const {
    endpoints = {},
    cors = true,
    discovery: hasDiscovery = true,
    clock = systemClock,
    maxTokenLifetimeSeconds = Infinity,
    checkMaySign = checkIsActive,
  } = merged;
  checkOptions(endpoints, { jwks: string }, "endpoint");
  if (!hasDiscovery && merged.metadata !== undefined) {
    throw new ConfigError("ERR_OPTION_INVALID", '"metadata" is for the discovery document, and "discovery" is false');
  }
  const { issuer, jwksUri, routes } = locate(merged.issuer, merged.mountPrefix, endpoints.jwks ?? undefined, {
    discovery: hasDiscovery,
  });
  const mode = rotationMode(
    merged.jwksRotationActive,
    merged.onWarning ?? ((warning) => console.warn(`jwksd: ${warning.message}`)),
  );
  const metadata = discoveryDocument(issuer, jwksUri, merged.metadata ?? {});
  const [discoveryJson, keysets] = await Promise.all([
    hasDiscovery ? makeDocument(metadata) : undefined,
    checkKeyset(merged.keyset ?? [], merged.encryptionKeyset ?? []),
  ]);
  const discovery = discoveryJson && represent(discoveryJson, "application/json", "public, max-age=3600", cors);

  const emit = (event: ProviderEvent): void => notify(merged.onEvent, event);
  const responses = createResponses();
  const activeKeys = createActiveKeys({
    clock,
    maxTokenLifetimeSeconds,
    signerLimits: merged.signerLimits,
    onFailure: (kid, error) => emit({ type: "signature-failed", kid, error }),
  });
  const retiredKids = createRetiredKids(emit, merged.retiredKid);
  const inTurn = serial();
  const inMode = (document: Document, mode: CacheMode): Representation =>
    represent(document, "application/jwk-set+json", cacheControl[mode], cors);
  let state = await prepare(keysets);

  /** Makes the next state, which is not in use yet. */
  async function prepare(keysets: CheckedKeysets): Promise<State> {
    const jwkSets = (await makeDocuments(keysets, clock.now())).map((document) => ({
      until: document.until,
      long: inMode(document, "long"),
      rotation: inMode(document, "rotation"),
    }));
    const verificationKeys = new Map(keysets.signing.map(({ jwk, publicKey }) => [jwk.kid, publicKey]));
    return { keysets, jwkSets, active: activeKeys.of(keysets.signing), verificationKeys };
  }

  function checkIsActive(kid: string): void {
    if (kid === state.active.kid) return;
    const message = `kid ${JSON.stringify(kid)} is no longer active; take the key anew for each request, with signingKey()`;
    throw new SignerError("ERR_SIGNER_FENCED", message);
  }

  const ownKeys: KeySource = ({ kid }) => {
    const key = state.verificationKeys.get(kid ?? "");
    if (key !== undefined) return key;
    retiredKids.note(kid ?? "");
    throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no published key");
  };

  let lastTarget: string | undefined;
  let lastRoute: ReturnType<typeof routes.get>;

  function routeOf(target: string): typeof lastRoute {
    // Most requests have the same target as the one before, and parsing a URL takes time.
    if (target !== lastTarget) {
      lastRoute = routes.get(target) ?? routes.get(targetPath(target));
      lastTarget = target;
    }
    return lastRoute;
  }

  function answer(method: string, target: string, ifNoneMatch: string | null | undefined): Reply | undefined {
    const route = routeOf(target);
    if (route === undefined) return undefined;
    const representation = route === "jwks" ? currentJwkSet()?.[mode()] : discovery;
    if (representation === undefined) return undefined;
    const isRead = method === "GET" || method === "HEAD";
    const reply = isRead ? respond(representation, method, ifNoneMatch) : methodNotAllowed.get;
    responses.count(route === "jwks" ? 0 : 1, reply);
    return reply;
  }

  function answerNotFound(method: string): Reply {
    const reply = withoutBodyOnHead(notFound, method);
    responses.count(documents.length - 1, reply);
    return reply;
  }

  function currentJwkSet(): State["jwkSets"][number] | undefined {
    const { jwkSets } = state;
    while (jwkSets.length > 1 && clock.now() >= (jwkSets[0]?.until ?? Infinity)) jwkSets.shift();
    return jwkSets[0];
  }

  /** Captured before any await, so that kid and signer belong together. */
  function activeNow(): ActiveKey {
    const { active } = state;
    checkMaySign(active.kid);
    return active;
  }

  const provider: PayloadProvider = {
    issuer,
    jwksUri,

    fetch: (request) =>
      toResponse(
        answer(request.method, request.url, request.headers.get("if-none-match")) ?? answerNotFound(request.method),
      ),

    node(request, response, next) {
      const method = request.method ?? "GET";
      const reply = answer(method, request.originalUrl ?? request.url ?? "/", request.headers["if-none-match"]);
      if (reply !== undefined) writeReply(response, reply);
      else if (next !== undefined) next();
      else writeReply(response, answerNotFound(method));
    },

    async update(change) {
      const { keyset, encryptionKeyset } = checkOptions(change ?? {}, updateRules, "keyset");
      // Checking begins at once; earlier updates take effect first.
      const checking = Promise.all([
        keyset ? checkSigning(keyset) : undefined,
        encryptionKeyset ? checkEncryption(encryptionKeyset) : undefined,
      ]);
      checking.catch(() => {});
      const taken = inTurn(async () => {
        const [signing = state.keysets.signing, encryption = state.keysets.encryption] = await checking;
        checkUnique({ signing, encryption });
        const before = [...state.verificationKeys.keys()];
        state = await prepare({ signing, encryption });
        const kids = signing.map(({ jwk }) => jwk.kid);
        retiredKids.update(kids, before);
        activeKeys.keep(kids);
        emit({ type: "updated", kids });
      });
      await taken.catch((error: unknown) => {
        if (error instanceof JwksdError) emit({ type: "refused", error });
        throw error;
      });
    },

    sign: async (claims, options) => signToken(activeNow(), issuer, claims, options, clock.now()),

    signPayload: async (payload) => signPayload(activeNow(), payload),

    signingKey: ({ clientId = issuer } = {}) => {
      const { active, keysets } = state;
      return signingKey({ active, publicJwk: keysets.signing[0].jwk, issuer: clientId, checkMaySign, clock });
    },

    verify: (token, options) => verify(token, { ...options, keys: ownKeys, issuer, algorithms: ["ES256"], clock }),

    metrics: () => [
      ...responses.metrics(),
      ...activeKeys.metrics(),
      retiredKids.metrics(),
      gauge(
        ["jwksd_rotation_mode", "Whether the short Cache-Control of a rotation is sent (1) or the long one (0)."],
        plain(mode() === "rotation"),
      ),
    ],
  };
  await keys?.subscribe(provider);
  return provider;
}
