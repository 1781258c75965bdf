import { type Clock, longestSince, systemClock } from "../../base/clock.ts";
import { StateError } from "../../base/errors.ts";
import { readKeyset } from "../../node/key-files.ts";
import { createProvider } from "../../provider/provider.ts";
import { stale, usableMs } from "../../rotation/manager/freshness.ts";
import { type Keyring, createKeyring } from "../../rotation/manager/keyring.ts";
import { type StoreAccess, clocksDiffer, createStoreAccess } from "../../rotation/manager/store-access.ts";
import { parseDocument } from "../../rotation/custody/document.ts";
import { unsealed } from "../../rotation/custody/mac.ts";
import { rotationPolicy } from "../../rotation/rules/policy.ts";
import { activeKey } from "../../rotation/rules/records.ts";
import type { Owner } from "../../rotation/custody/issuer-check.ts";
import type { Claims, SignOptions } from "../../sign/token/sign-options.ts";
import type { Logger } from "../config/logger.ts";
import { openManaged, openStore } from "../store/open-store.ts";
import { type StoreSettings, storeSettingsOf } from "../config/store-settings.ts";
import { issuerOf } from "../config/addresses.ts";
import { type Settings, settingDefinitions } from "../config/setting-definitions.ts";
import { signersOf } from "../config/signers.ts";

/** How long a token lives, in seconds, unless somebody says it or a policy wants less. */
const usualSeconds = 3600;

/**
 * Signs a token with the active key of a configuration of `jwksd serve`; nothing has to be running.
 *
 * @throws ServiceError `ERR_FILE_UNREADABLE`, `ERR_NO_KEY_FILES`
 * @throws StateError, SignerError as `sign` of a provider throws them
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @throws ConfigError, KeyMaterialError see `createProvider`
 */
export async function signWithSettings(
  settings: Settings,
  claims: Claims,
  options: SignOptions,
  log: Logger,
): Promise<string> {
  if (settings.keys !== undefined) {
    const { entries } = await readKeyset(settings.keys);
    const provider = await createProvider({ issuer: issuerOf(settings, settings.port), keyset: entries });
    return provider.sign(claims, withLifetime(claims, options, usualSeconds));
  }
  const store = storeSettingsOf(settings);
  if (store.path !== undefined) await checkHasKey(store);
  const { custody } = await openManaged(store, log);
  const { openSigner } = await signersOf(settings);
  const { signal } = new AbortController();
  const access = createStoreAccess(custody, { policy: rotationPolicy(store.policy), clock: systemClock, signal });
  const keyring = createKeyring(custody, access, { openSigner, clock: systemClock, signal });
  try {
    return await signOnce({ access, keyring }, () => issuerFor(settings, custody.owner), claims, options);
  } finally {
    await keyring.close();
    await custody.register.close?.();
  }
}

/** What signs one token. */
export interface OneShot {
  readonly access: StoreAccess;
  readonly keyring: Keyring;
}

/** A claim `exp` says how long the token lives. */
const withLifetime = (claims: Claims, options: SignOptions, lifetimeSeconds: number): SignOptions =>
  Object.hasOwn(claims, "exp") ? options : { ...options, lifetimeSeconds: options.lifetimeSeconds ?? lifetimeSeconds };

/**
 * Signs with the active key of a store, by what a confirmed read has shown.
 *
 * @param issuer called after the store was read
 * @throws StateError `ERR_TRANSITION`: the store holds no key yet
 * @throws SignerError `ERR_SIGNER_STALE`: the signer is too slow, or the clock of this machine and that of the store differ by more than
 * `clockSkewSeconds`
 */
export async function signOnce(
  { access, keyring }: OneShot,
  issuer: () => string,
  claims: Claims,
  options: SignOptions,
  clock: Clock = systemClock,
): Promise<string> {
  const seen = await access.read({ confirmed: true });
  const { records, policy } = seen.document;
  const { maxTokenLifetimeSeconds, clockSkewSeconds } = policy;
  const active = activeKey(records, "sig");
  if (active === undefined) throw noKeyYet();
  const { signers, unopened } = await keyring.open([active]);
  if (unopened.has(active.kid)) throw unopened.get(active.kid);
  const permit = (): void => {
    if (longestSince(seen.asked, clock) >= usableMs(policy)) throw stale("it has read the store too long ago");
    if (clocksDiffer(seen, clock, clockSkewSeconds * 1000)) {
      throw stale("the clock of this machine and that of the store differ by more than clockSkewSeconds");
    }
  };
  const provider = await createProvider({
    issuer: issuer(),
    keyset: [{ kid: active.kid, signer: signers.get(active.kid) }],
    maxTokenLifetimeSeconds,
    clock,
    permit: () => permit,
  });
  return provider.sign(claims, withLifetime(claims, options, Math.min(usualSeconds, maxTokenLifetimeSeconds)));
}

/** A wrapping key is not made beside a store in which it would wrap nothing. @throws StateError `ERR_TRANSITION` */
async function checkHasKey(settings: StoreSettings): Promise<void> {
  // Opening it to sign warns.
  const register = await openStore(settings, { warn() {} });
  const { text } = await register.read().finally(() => register.close?.());
  if (text === undefined || activeKey(parseDocument(unsealed(text)).records, "sig") === undefined) throw noKeyYet();
}

function noKeyYet(): StateError {
  return new StateError(
    "ERR_TRANSITION",
    'the store holds no key; if it had keys, see "The store is lost" in docs/emergencies.md; if not, jwksd serve makes the first one',
  );
}

/** As `serve` publishes it: what the store says, unless an address is given for keys that have no chosen issuer. */
function issuerFor(settings: Settings, { issuer, isChosen }: Owner): string {
  const { host, port } = settingDefinitions;
  const isGiven = settings.host !== host.fallback || settings.port !== port.fallback;
  return isGiven && !isChosen ? issuerOf(settings, settings.port) : issuer;
}
