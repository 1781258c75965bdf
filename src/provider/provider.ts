import { notify, serial } from "../base/async.ts";
import { systemClock } from "../base/clock.ts";
import { JwksdError, KeyMaterialError, SignerError, TokenError, invalidOption } from "../base/errors.ts";
import { type Optional, type Rules, array, checkOptions, string, text } from "../base/options.ts";
import { entriesFor, jwkSetOf } from "../publish/jwk-set.ts";
import { checkEncryption, checkKeysets, checkSigning } from "../publish/keyset.ts";
import { type KeySource, verify } from "../verify/token/verify.ts";
import { optionsOf } from "./managed-keys.ts";
import { type ProviderEvent, type ProviderOptions, mergeOptions } from "./options.ts";
import { createPublisher } from "../publish/publisher.ts";
import { createRetiredKids } from "./retired-kids.ts";
import { rotationMode } from "../publish/rotation-mode.ts";
import { createTokenSigner } from "../sign/token/token-signer.ts";
import type { KeysetUpdate, Provider } from "./types.ts";

const updateRules: Rules<KeysetUpdate> = { keyset: array, encryptionKeyset: array };

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
export async function createProvider(...options: readonly Optional<ProviderOptions>[]): Promise<Provider> {
  const given = mergeOptions(options);
  const { keys } = given;
  const merged = keys === undefined ? given : mergeOptions([optionsOf(keys, given)]);
  const { endpoints = {}, cors = true, discovery = true, metadata, clock = systemClock, permit, signerLimits } = merged;
  const { onWarning = (warning) => console.warn(`jwksd: ${warning.message}`), onEvent } = merged;
  checkOptions(endpoints, { jwks: string }, "endpoint");
  if (!discovery && metadata !== undefined)
    throw invalidOption('"metadata" is for the discovery document, and "discovery" is false');

  const mode = rotationMode(merged.jwksRotationActive, onWarning);
  const { mountPrefix } = merged;
  const site = { issuer: merged.issuer, mountPrefix, jwksPath: endpoints.jwks ?? undefined, discovery, metadata, cors };
  const onDemand = keys?.onDemand;
  const fresh = onDemand && (() => onDemand.fresh());
  if (keys === undefined && merged.keyset === undefined)
    throw new KeyMaterialError("ERR_KEYSET_EMPTY", 'option "keyset" is missing; give the signing keys, or "keys"');
  // Begins now, so that what the caller does with its keysets from here on has no effect.
  const { keyset = [], encryptionKeyset = [] } = merged;
  const checking = onDemand === undefined ? checkKeysets({ keyset, encryptionKeyset }) : undefined;
  checking?.catch(() => {});
  const publisherOptions = { mode, clock, fresh };
  const { publish, metrics: responseMetrics, ...publisher } = await createPublisher(site, publisherOptions);
  const { issuer } = publisher;

  /** `undefined` until keys were read for the first time. */
  let checked = await checking;
  if (checked !== undefined) publish(checked.set);

  const emit = (event: ProviderEvent): void => notify(onEvent, event);
  const signer = createTokenSigner(
    {
      issuer,
      clock,
      maxTokenLifetimeSeconds: () => keys?.maxTokenLifetimeSeconds ?? merged.maxTokenLifetimeSeconds ?? Infinity,
      permit,
      signerLimits,
      onFailure: (kid, error) => emit({ type: "signature-failed", kid, error }),
    },
    checked?.signing,
  );

  const retiredKids = createRetiredKids(emit, merged.retiredKid);
  let publicKeys = keysByKid();
  // On demand, an update may end with the request that began it, and no other one may wait for that.
  const inTurn = onDemand === undefined ? serial() : <T>(action: () => Promise<T>) => action();
  let [calls, lastCall] = [0, 0];

  function keysByKid() {
    return new Map(checked?.signing.entries.map(({ jwk, publicKey }) => [jwk.kid, publicKey]));
  }

  function current() {
    if (checked === undefined) throw new SignerError("ERR_SIGNER_STALE", "no keys have been read yet");
    return checked;
  }

  function published(kid: string) {
    const key = publicKeys.get(kid);
    if (key !== undefined) return key;
    retiredKids.note(kid);
    throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no published key");
  }

  const ownKeys: KeySource = ({ kid = "" }) =>
    onDemand === undefined || publicKeys.has(kid) ? published(kid) : onDemand.ask().then(() => published(kid));

  const provider: Provider = {
    ...publisher,

    async update(change) {
      const { keyset, encryptionKeyset } = checkOptions(change ?? {}, updateRules, "keyset");
      // Checking begins at once; earlier updates take effect first.
      const checking = Promise.all([
        keyset ? checkSigning(keyset) : undefined,
        encryptionKeyset ? checkEncryption(encryptionKeyset) : undefined,
      ]);
      checking.catch(() => {});
      calls += 1;
      const call = calls;
      const taken = inTurn(async () => {
        const [signing = current().signing, encryption = entriesFor("enc", current().set.entries)] = await checking;
        const set = await jwkSetOf([...signing.entries, ...encryption]);
        if (call < lastCall) return;
        lastCall = call;
        const before = [...publicKeys.keys()];
        // From here on in one step.
        checked = { signing, set };
        publish(set);
        signer.take(signing);
        publicKeys = keysByKid();
        const kids = [...publicKeys.keys()];
        retiredKids.update(kids, before);
        emit({ type: "updated", kids });
      });
      await taken.catch((error: unknown) => {
        if (error instanceof JwksdError) emit({ type: "refused", error });
        throw error;
      });
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
      const { clientId = issuer } = checkOptions(options, { clientId: text });
      await fresh?.();
      return signer.signingKey(clientId);
    },

    async verify(token, options) {
      await fresh?.();
      return verify(token, { ...options, keys: ownKeys, issuer, algorithms: ["ES256"], clock });
    },

    metrics: () => [...responseMetrics(), ...signer.metrics(), retiredKids.metrics()],
  };
  await keys?.subscribe(provider);
  return Object.freeze(provider);
}
