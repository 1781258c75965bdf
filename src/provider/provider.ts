import { notify, serial } from "../base/async.ts";
import type { CacheMode } from "../base/cache-control.ts";
import type { Clock } from "../base/clock.ts";
import { type ConfigError, JwksdError, TokenError, invalidOption } from "../base/errors.ts";
import type { Metric } from "../base/metrics.ts";
import { type Rules, array, checkOptions, nonEmptyString } from "../base/options.ts";
import type { SignerLimits } from "../keys/signer/bounded-signer.ts";
import { type JwkSet, type JwkSetEntry, jwkSetOf } from "../publish/jwk-set.ts";
import {
  type CheckedSigning,
  type EncryptionKeyset,
  type Keyset,
  type Keysets,
  checkEncryption,
  checkSigning,
} from "../publish/keyset-check.ts";
import { type Site, createPublisher } from "../publish/publisher.ts";
import { type TokenSigner, createTokenSigner } from "../sign/token/token-signer.ts";
import { type KeyResolver, verify } from "../verify/token/verify.ts";
import type { KeysOnDemand, KeysetSource } from "./managed-keys.ts";
import type { ProviderEvent } from "./options.ts";
import { createRetiredKids } from "./retired-kids.ts";
import type { ProviderUpdate, Provider } from "./types.ts";

/** A provider's options, with their defaults. */
export interface ProviderSetup extends Keysets {
  readonly site: Site;
  /** Source of the signing keys, and of encryption keys that are listed before those in `encryptionKeyset`. */
  readonly keys: KeysetSource | undefined;
  /** Reads keys on demand. `undefined` if they are read in advance and change on their own. */
  readonly onDemand?: KeysOnDemand | undefined;
  readonly mode: () => CacheMode;
  /** Maximum token lifetime in seconds, if there is no source. Default: no limit. */
  readonly maxTokenLifetimeSeconds?: number | undefined;
  readonly signerLimits?: SignerLimits | undefined;
  readonly clock: Clock;
  readonly onEvent?: ((event: ProviderEvent) => void) | undefined;
}

/** A provider with the methods that only the service calls. */
export interface ServiceProvider extends Provider, Pick<TokenSigner, "signPayload" | "checkMaySign"> {
  /** This provider without the additional methods. */
  readonly publicPart: Provider;
  /**
   * Follows the source. Publishes its keys now and after every change. Resolves once they have been published for the
   * first time.
   *
   * @param onTaken function that is called with every change, as part of publishing it
   */
  follow(this: void, onTaken?: (keysets: Keysets) => Promise<void>): Promise<void>;
  /** Returns the published keys, in their order in the set. */
  publishedKeys(this: void): readonly JwkSetEntry[];
  /** Returns only the metrics about responses. */
  responseMetrics(this: void): readonly Metric[];
  /** Returns only the metrics about signatures. */
  signatureMetrics(this: void): readonly Metric[];
}

/** Keys in the order in which they are published. */
interface PublishedKeys {
  /** Signing keys. With `onDemand`, `undefined` until keys have been read. */
  readonly signing?: CheckedSigning;
  /** Encryption keys from the source. */
  readonly managed: readonly JwkSetEntry[];
  readonly encryption: readonly JwkSetEntry[];
}

const updateRules: Rules<ProviderUpdate> = { keyset: array, encryptionKeyset: array };

/**
 * Creates a provider. Checks all keys before the first request.
 *
 * @throws ConfigError, KeyMaterialError, for the same reasons as `createProvider`
 */
export async function provide(setup: ProviderSetup): Promise<ServiceProvider> {
  const { site, keys, onDemand, mode, signerLimits, clock } = setup;
  const fresh = onDemand && (() => onDemand.fresh());
  // Started immediately, so that it does not matter if the caller later changes its keysets.
  const checking = firstKeys(setup);
  checking.catch(() => {});
  const { publish, metrics: responseMetrics, ...publisher } = await createPublisher(site, { mode, clock, fresh });
  const { issuer } = publisher;

  let published = await checking;
  let set = await setOf(published);
  if (set !== undefined) publish(set);
  let publicKeys = keysByKid();

  const emit = (event: ProviderEvent): void => notify(setup.onEvent, event);
  const signer = createTokenSigner(
    {
      issuer,
      clock,
      maxTokenLifetimeSeconds: () => keys?.maxTokenLifetimeSeconds ?? setup.maxTokenLifetimeSeconds ?? Infinity,
      permit: keys && ((kid) => keys.permit(kid)),
      signerLimits,
      onFailure: (kid, error) => emit({ type: "signature-failed", kid, error }),
    },
    published.signing,
  );
  const retiredKids = createRetiredKids(
    (kid, end) => emit({ type: "retired-kid-presented", kid, end }),
    keys && ((kid) => keys.endOf(kid)),
  );

  function keysByKid() {
    return new Map(published.signing?.entries.map(({ jwk, publicKey }) => [jwk.kid, publicKey]));
  }

  // With `onDemand`, an update may be canceled along with the request that started it, so no other update may depend on
  // it.
  const inTurn = onDemand === undefined ? serial() : <T>(action: () => Promise<T>) => action();

  /** Publishes checked keys. @param isLate reports whether a later call of the same kind has finished first */
  async function change(checked: Partial<PublishedKeys>, isLate: () => boolean): Promise<void> {
    const before = published;
    const next = { ...before, ...checked };
    const nextSet = await setOf(next);
    if (isLate()) return;
    // Another change took effect in the meantime. This one must not undo it.
    if (published !== before) return change(checked, isLate);
    // From here on, the change is synchronous, which makes it atomic.
    [published, set] = [next, nextSet];
    if (set === undefined || next.signing === undefined) return;
    publish(set);
    signer.take(next.signing);
    const kidsBefore = [...publicKeys.keys()];
    publicKeys = keysByKid();
    const kids = [...publicKeys.keys()];
    retiredKids.update(kids, kidsBefore);
    emit({ type: "updated", kids });
  }

  /**
   * Creates a function that publishes keys in the order in which it is called. Keys can be checked in parallel, but
   * each change waits for earlier ones.
   */
  function changes() {
    let [calls, lastCall] = [0, 0];
    return async (checking: Promise<Partial<PublishedKeys>>): Promise<void> => {
      checking.catch(() => {});
      calls += 1;
      const call = calls;
      const isLate = (): boolean => {
        lastCall = Math.max(call, lastCall);
        return call < lastCall;
      };
      await inTurn(async () => change(await checking, isLate)).catch((error: unknown) => {
        if (error instanceof JwksdError) emit({ type: "refused", error });
        throw error;
      });
    };
  }
  const [takeManaged, takeUpdate] = [changes(), changes()];

  function publishedKey(kid: string) {
    const key = publicKeys.get(kid);
    if (key !== undefined) return key;
    retiredKids.recordToken(kid);
    throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "no published key has the token's kid");
  }

  const ownKeys: KeyResolver =
    onDemand === undefined
      ? ({ kid = "" }) => publishedKey(kid)
      : async ({ kid = "" }) => {
          await onDemand.fresh();
          if (!publicKeys.has(kid)) await onDemand.ask();
          return publishedKey(kid);
        };

  const publicPart: Provider = {
    ...publisher,

    async update(given) {
      const { keyset, encryptionKeyset } = checkOptions(given ?? {}, updateRules, "keyset");
      if (keyset !== undefined && keys !== undefined) throw alreadyInKeys("keyset");
      await takeUpdate(checkUpdate(keyset, encryptionKeyset));
    },

    sign:
      fresh === undefined
        ? signer.sign
        : async (claims, options) => {
            await fresh();
            return signer.sign(claims, options);
          },

    async jwkSet() {
      await fresh?.();
      return publisher.jwkSet();
    },

    async signingKey(options = {}) {
      const { clientId = issuer } = checkOptions(options, { clientId: nonEmptyString });
      await fresh?.();
      return signer.signingKey(clientId);
    },

    keys: ownKeys,

    verify: (token, options) => verify(token, { ...options, keys: ownKeys, issuer, algorithms: ["ES256"], clock }),

    metrics: () => [...responseMetrics(), ...signer.metrics(), retiredKids.metrics()],
  };

  return {
    ...publicPart,
    publicPart: Object.freeze(publicPart),
    signPayload: signer.signPayload,
    checkMaySign: signer.checkMaySign,
    async follow(onTaken) {
      await keys?.subscribe({
        async update(keysets) {
          await takeManaged(checkManaged(keysets));
          await onTaken?.(keysets);
        },
      });
    },
    publishedKeys: () => set?.entries ?? [],
    responseMetrics,
    signatureMetrics: signer.metrics,
  };
}

export const alreadyInKeys = (name: string): ConfigError =>
  invalidOption(`"keys" already provides "${name}"; remove this option`);

/** Checks the keys to publish at startup. */
async function firstKeys({ keys, onDemand, keyset, encryptionKeyset }: ProviderSetup): Promise<PublishedKeys> {
  const [own, managed] = await Promise.all([
    checkUpdate(keys === undefined ? keyset : undefined, encryptionKeyset),
    keys === undefined || onDemand !== undefined ? undefined : checkManaged(keys.keysets),
  ]);
  return { managed: [], encryption: [], ...own, ...managed };
}

async function checkManaged({ keyset, encryptionKeyset }: Keysets): Promise<Partial<PublishedKeys>> {
  const [signing, managed] = await Promise.all([checkSigning(keyset), checkEncryption(encryptionKeyset)]);
  return { signing, managed };
}

async function checkUpdate(keyset?: Keyset, encryptionKeyset?: EncryptionKeyset): Promise<Partial<PublishedKeys>> {
  const [signing, encryption] = await Promise.all([
    keyset && checkSigning(keyset),
    encryptionKeyset && checkEncryption(encryptionKeyset),
  ]);
  return { ...(signing && { signing }), ...(encryption && { encryption }) };
}

/**
 * Creates the JWK Set that contains these keys. Returns `undefined` if there are no signing keys yet.
 *
 * @throws KeyMaterialError, for the same reasons as `jwkSetOf`
 */
async function setOf({ signing, managed, encryption }: PublishedKeys): Promise<JwkSet | undefined> {
  return signing && jwkSetOf([...signing.entries, ...managed, ...encryption]);
}
