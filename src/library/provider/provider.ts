import type { CryptoKey } from "jose";
import { notify, serial } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { ConfigError, JwksdError, TokenError } from "../../base/errors.ts";
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
import { type ActiveKey, type Claims, type SignOptions, signToken } from "../token/sign.ts";
import { type KeySource, type VerifiedToken, type VerifyOptions, verify } from "../token/verify.ts";
import { createActiveKeys } from "./active-keys.ts";
import { discoveryDocument } from "./discovery.ts";
import { type Rules, array, checkOptions, string } from "../../base/options.ts";
import { type ProviderEvent, type ProviderOptions, mergeOptions } from "./options.ts";
import { targetPath } from "../../base/urls.ts";
import { locate } from "./paths.ts";
import { createResponses, documents } from "./responses.ts";
import { rotationMode } from "./rotation-mode.ts";

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
   * Signs claims with the active key, always ES256, and sets `iss`, `iat` and `exp`.
   *
   * @throws TokenError `ERR_CLAIMS_INVALID`
   * @throws SignerError `ERR_SIGNER_THROTTLED`, `ERR_SIGNER_UNAVAILABLE`, `ERR_SIGNER_TIMEOUT`, `ERR_SIGNER_BUSY` (all `retryable`),
   * `ERR_SIGNER_UNAUTHORIZED`, `ERR_SIGNER_KEY_STATE`, `ERR_SIGNER_ABORTED`, `ERR_SIGNER_BAD_SIGNATURE`, `ERR_SIGNER_PUBLISH_ONLY`
   */
  sign(this: void, claims: Claims, options: SignOptions): Promise<string>;
  /**
   * Verifies a token of this provider with the published key of its kid. An unknown kid is an error: no other key is tried.
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
 * Makes a provider from its options, merged left to right. All options and keys are checked before the first request.
 *
 * @example
 * ```ts
 * const { entries: keyset } = await readKeyset("./keys");
 * const provider = await createProvider({ issuer: "https://login.example.com", keyset });
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
  const merged = mergeOptions(options);
  const {
    endpoints = {},
    cors = true,
    discovery: hasDiscovery = true,
    clock = systemClock,
    maxTokenLifetimeSeconds = Infinity,
    checkMaySign = () => {},
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

  const ownKeys: KeySource = ({ kid }) => {
    const key = state.verificationKeys.get(kid ?? "");
    if (key === undefined) throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no published key");
    return key;
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

  return Object.freeze({
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
        state = await prepare({ signing, encryption });
        const kids = signing.map(({ jwk }) => jwk.kid);
        activeKeys.keep(kids);
        emit({ type: "updated", kids });
      });
      await taken.catch((error: unknown) => {
        if (error instanceof JwksdError) emit({ type: "refused", error });
        throw error;
      });
    },

    // The active key is captured before any await, so that kid and signer belong together.
    async sign(claims, options) {
      const { active } = state;
      checkMaySign(active.kid);
      return signToken(active, issuer, claims, options, clock.now());
    },

    verify: (token, options) => verify(token, { ...options, keys: ownKeys, issuer, algorithms: ["ES256"], clock }),

    metrics: () => [
      ...responses.metrics(),
      ...activeKeys.metrics(),
      gauge(
        ["jwksd_rotation_mode", "Whether the short Cache-Control of a rotation is sent (1) or the long one (0)."],
        plain(mode() === "rotation"),
      ),
    ],
  } satisfies Provider);
}
