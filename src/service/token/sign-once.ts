import { type Clock, longestSince, systemClock } from "../../base/clock.ts";
import { SignerError, RotationError } from "../../base/errors.ts";
import { readKeyset } from "../../node/read-key-files.ts";
import { checkKeysets, checkSigning } from "../../publish/keyset-check.ts";
import { parseDocument } from "../../rotation/custody/document.ts";
import { unsealed } from "../../rotation/custody/mac.ts";
import { readRegister } from "../../rotation/custody/read-register.ts";
import { stale, usableMs } from "../../rotation/manager/check-in.ts";
import type { Keyring } from "../../rotation/manager/key-changes.ts";
import type { StoreAccess } from "../../rotation/manager/store-access.ts";
import { clocksDiffer, clocksText } from "../../rotation/manager/store-clock.ts";
import { decommissionedText } from "../../rotation/rules/decommission.ts";
import { activeKey, isDecommissioned } from "../../rotation/rules/key-records.ts";
import type { Claims, SignOptions } from "../../sign/token/sign-options.ts";
import { createTokenSigner } from "../../sign/token/token-signer.ts";
import type { StoreSettings } from "../config/store-settings.ts";
import { openStore } from "../store/open-store.ts";

// Signs tokens for a command, without a running service.

/** Default token lifetime, in seconds. A policy may require a shorter lifetime. */
const usualSeconds = 3600;

/** Adds a lifetime to the options, unless the claims have `exp`. */
const withLifetime = (claims: Claims, options: SignOptions, lifetimeSeconds: number): SignOptions =>
  Object.hasOwn(claims, "exp") ? options : { ...options, lifetimeSeconds: options.lifetimeSeconds ?? lifetimeSeconds };

/**
 * Signs a token with the active key from key files.
 *
 * @throws the same errors as `readKeyset` and `Provider.sign`
 */
export async function signWithFiles(
  files: string,
  issuer: string,
  claims: Claims,
  options: SignOptions,
): Promise<string> {
  const { entries } = await readKeyset(files);
  const { signing } = await checkKeysets({ keyset: entries, encryptionKeyset: [] });
  const signer = createTokenSigner({ issuer, clock: systemClock, maxTokenLifetimeSeconds: () => Infinity }, signing);
  return signer.sign(claims, withLifetime(claims, options, usualSeconds));
}

/**
 * Signs a token with the active key in an open store, after a confirmed read.
 *
 * @param issuer function that is called after the store has been read
 * @throws RotationError `ERR_TRANSITION` if the store has no keys yet
 * @throws SignerError `ERR_SIGNER_STALE` if the signer is too slow or if the clocks of this machine and the store
 * differ by more than `clockSkewSeconds`, as well as the errors from `Provider.sign`
 * @throws TokenError `ERR_CLAIMS_INVALID`
 */
export async function signOnce(
  { access, keyring }: { readonly access: StoreAccess; readonly keyring: Keyring },
  issuer: () => string,
  claims: Claims,
  options: SignOptions,
  clock: Clock = systemClock,
): Promise<string> {
  const seen = await access.read({ confirmed: true });
  const { records, policy } = seen.document;
  const { maxTokenLifetimeSeconds } = policy;
  const active = activeKey(records, "sig");
  if (active === undefined)
    throw isDecommissioned(records) ? new SignerError("ERR_SIGNER_DECOMMISSIONED", decommissionedText) : noKeyYet();
  const { signers, unavailable } = await keyring.open([active]);
  if (unavailable.has(active.kid)) throw unavailable.get(active.kid);
  const permit = (): void => {
    if (longestSince(seen.asked, clock) >= usableMs(policy)) throw stale("it last read the store too long ago");
    if (clocksDiffer(seen, clock)) throw stale(clocksText(seen, clock));
  };
  const signing = await checkSigning([{ kid: active.kid, signer: signers.get(active.kid) }]);
  const signer = createTokenSigner(
    { issuer: issuer(), clock, maxTokenLifetimeSeconds: () => maxTokenLifetimeSeconds, permit: () => permit },
    signing,
  );
  return signer.sign(claims, withLifetime(claims, options, Math.min(usualSeconds, maxTokenLifetimeSeconds)));
}

/**
 * Checks that the store has keys. Called before a wrapping key is generated, because without keys, there would be
 * nothing to wrap.
 *
 * @throws RotationError `ERR_TRANSITION`
 */
export async function checkHasKey(store: StoreSettings): Promise<void> {
  if (store.path === undefined) return;
  // Opening the store to sign logs the warnings.
  const register = await openStore(store, { warn() {} });
  const { text } = await readRegister(register).finally(() => register.close?.());
  if (text === undefined || parseDocument(unsealed(text)).records.length === 0) throw noKeyYet();
}

function noKeyYet(): RotationError {
  return new RotationError(
    "ERR_TRANSITION",
    'the store has no keys; if it had keys before, see "A lost store" in docs/emergencies.md; if it is new, start jwksd serve, which generates the first key',
  );
}
