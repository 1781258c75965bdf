import type { CryptoKey } from "jose";
import { notify, serial } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { JwksdError, SignerError, TokenError, invalidOption } from "../../base/errors.ts";
import { type CacheMode, type Representation, cacheControl, represent } from "../http/respond.ts";
import { type Document, makeDocument, makeDocuments } from "../../keys/keyset/document.ts";
import {
  type CheckedKeysets,
  checkEncryption,
  checkKeyset,
  checkSigning,
  checkUnique,
} from "../../keys/keyset/keyset.ts";
import { gauge, plain } from "../../base/metrics.ts";
import { type ActiveKey, signPayload, signToken } from "../token/sign.ts";
import { type KeySource, verify } from "../token/verify.ts";
import { createActiveKeys } from "./active-keys.ts";
import { createHandlers } from "./handlers.ts";
import { discoveryDocument } from "./discovery.ts";
import { type Rules, array, checkOptions, string, text } from "../../base/options.ts";
import { type ProviderEvent, type ProviderOptions, mergeOptions } from "./options.ts";
import { locate } from "./paths.ts";
import { optionsOf } from "./managed-keys.ts";
import { createRetiredKids } from "./retired-kids.ts";
import { rotationMode } from "./rotation-mode.ts";
import { signingKey } from "./signing-key.ts";
import type { KeysetUpdate, PayloadProvider, Provider } from "./types.ts";

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
    permit,
  } = merged;
  checkOptions(endpoints, { jwks: string }, "endpoint");
  if (!hasDiscovery && merged.metadata !== undefined) {
    throw invalidOption('"metadata" is for the discovery document, and "discovery" is false');
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
  const activeKeys = createActiveKeys({
    clock,
    maxTokenLifetimeSeconds: () => keys?.maxTokenLifetimeSeconds ?? maxTokenLifetimeSeconds,
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
    const jwkSets = (await makeDocuments(keysets)).map((document) => ({
      until: document.until,
      long: inMode(document, "long"),
      rotation: inMode(document, "rotation"),
    }));
    const verificationKeys = new Map(keysets.signing.map(({ jwk, publicKey }) => [jwk.kid, publicKey]));
    return { keysets, jwkSets, active: activeKeys.of(keysets.signing), verificationKeys };
  }

  const { metrics: responseMetrics, ...handlers } = createHandlers(routes, (document) =>
    document === "jwks" ? currentJwkSet()?.[mode()] : discovery,
  );

  function checkIsActive(kid: string): void {
    if (kid === state.active.kid) return;
    const message = `kid ${JSON.stringify(kid)} is no longer active; take the key anew for each request, with signingKey()`;
    throw new SignerError("ERR_SIGNER_STALE", message);
  }

  const ownKeys: KeySource = ({ kid }) => {
    const key = state.verificationKeys.get(kid ?? "");
    if (key !== undefined) return key;
    retiredKids.note(kid ?? "");
    throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no published key");
  };

  function currentJwkSet(): State["jwkSets"][number] | undefined {
    const { jwkSets } = state;
    if (jwkSets.length === 1) return jwkSets[0];
    // A clock that is set back finds the earlier document again.
    const now = clock.now();
    return jwkSets.find(({ until }) => now < until);
  }

  /**
   * Signs with the active key. It is captured before any await, so that kid, signer and the times of the token belong together. An update
   * that takes effect meanwhile does not matter; whether a manager's key may still sign does.
   */
  async function withActive<T>(sign: (active: ActiveKey) => Promise<T>): Promise<T> {
    const { active } = state;
    const check = permit?.(active.kid);
    check?.();
    const signed = await sign(active);
    check?.();
    return signed;
  }

  const provider: PayloadProvider = {
    issuer,
    jwksUri,

    ...handlers,

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

    sign: (claims, options) => withActive((active) => signToken(active, issuer, claims, options, clock.now())),

    signPayload: (payload) => withActive((active) => signPayload(active, payload)),

    signingKey(options = {}) {
      const { clientId = issuer } = checkOptions(options, { clientId: text });
      const { active, keysets } = state;
      const check = permit?.(active.kid) ?? (() => checkIsActive(active.kid));
      return signingKey({ active, publicJwk: keysets.signing[0].jwk, issuer: clientId, check, clock });
    },

    verify: (token, options) => verify(token, { ...options, keys: ownKeys, issuer, algorithms: ["ES256"], clock }),

    metrics: () => [
      ...responseMetrics(),
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
