import { type Clock, instantNow, longestSince, systemClock } from "../../base/clock.ts";
import { StateError } from "../../base/errors.ts";
import { readKeyset } from "../../library/node/key-files.ts";
import { createProvider } from "../../library/provider/provider.ts";
import { clocksDiffer } from "../../rotation/manager/clocks.ts";
import { type Keyring, createKeyring } from "../../rotation/manager/keyring.ts";
import { fenced } from "../../rotation/manager/replica.ts";
import { signWithinSeconds } from "../../rotation/rules/policy.ts";
import { activeKey } from "../../rotation/rules/records.ts";
import type { Owner } from "../../rotation/custody/issuer-check.ts";
import type { Claims, SignOptions } from "../../library/token/sign.ts";
import { commandPolicy } from "../config/command-policy.ts";
import type { Logger } from "../config/logger.ts";
import { openManaged, openStore, storePath } from "../config/open-store.ts";
import { issuerOf } from "../config/issuer.ts";
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
  if (storePath(settings) !== undefined) await checkHasKey(settings);
  const { custody, leases } = await openManaged(settings, log);
  const { store } = custody;
  const policy = commandPolicy(settings, leases, log);
  const { openSigner } = await signersOf(settings);
  const { signal } = new AbortController();
  const keyring = createKeyring(custody, { policy, openSigner, clock: systemClock, signal });
  try {
    const lifetimeSeconds = Math.min(usualSeconds, policy.maxTokenLifetimeSeconds);
    const given = withLifetime(claims, options, lifetimeSeconds);
    return await signFresh(keyring, () => issuerFor(settings, custody.owner), claims, given);
  } finally {
    await keyring.close();
    await store.close();
  }
}

/** A claim `exp` says how long the token lives. */
const withLifetime = (claims: Claims, options: SignOptions, lifetimeSeconds: number): SignOptions =>
  Object.hasOwn(claims, "exp") ? options : { ...options, lifetimeSeconds: options.lifetimeSeconds ?? lifetimeSeconds };

/** How often the store is read for one token. */
const maxReads = 3;

/**
 * Signs with the active key of a store. Whoever has no lease may sign only for seconds after its read of the store, because the others do
 * not know of it: the claims get their times within them, else the store is read again.
 *
 * @param issuer called after the store was read
 * @throws StateError `ERR_TRANSITION`: the store holds no key yet
 * @throws SignerError `ERR_SIGNER_STALE`: store or signer are too slow, or the clock of this machine and that of the store differ by
 * more than `clockSkewSeconds`
 */
export async function signFresh(
  keyring: Keyring,
  issuer: () => string,
  claims: Claims,
  options: SignOptions,
  clock: Clock = systemClock,
): Promise<string> {
  const { policy } = keyring;
  const skewMs = policy.clockSkewSeconds * 1000;
  const tooLate = fenced(
    `${maxReads} times in a row, it took longer than ${signWithinSeconds} s from asking the store to signing`,
  );
  for (let reads = 1; ; reads += 1) {
    const asked = instantNow(clock);
    // This commit notes the longest lifetime of the tokens of this process.
    const { records, seen } = await keyring.change((records) => ({ records, events: [] }));
    if (clocksDiffer(seen, clock, skewMs)) {
      throw fenced("the clock of this machine and that of the store differ by more than clockSkewSeconds");
    }
    const active = activeKey(records, "sig");
    if (active === undefined) throw noKeyYet();
    const { signers } = await keyring.open([active]);
    const provider = await createProvider({
      issuer: issuer(),
      keyset: [{ kid: active.kid, signer: signers.get(active.kid) }],
      maxTokenLifetimeSeconds: policy.maxTokenLifetimeSeconds,
      clock,
      checkMaySign() {
        if (longestSince(asked, clock) > signWithinSeconds * 1000) throw tooLate;
      },
    });
    try {
      return await provider.sign(claims, options);
    } catch (error) {
      if (error !== tooLate || reads === maxReads) throw error;
    }
  }
}

/** A wrapping key is not made beside a store in which it would wrap nothing. @throws StateError `ERR_TRANSITION` */
async function checkHasKey(settings: Settings): Promise<void> {
  // Opening it to sign warns.
  const store = await openStore(settings, { warn() {} });
  const { records } = await store.load().finally(() => store.close());
  if (activeKey(records, "sig") === undefined) throw noKeyYet();
}

function noKeyYet(): StateError {
  return new StateError(
    "ERR_TRANSITION",
    'the store holds no key; if it had keys, see "The store is lost" in docs/operations.md; if not, jwksd serve makes the first one',
  );
}

/** As `serve` publishes it: what the store says, unless an address is given for keys that have no chosen issuer. */
function issuerFor(settings: Settings, { issuer, isChosen }: Owner): string {
  const { host, port } = settingDefinitions;
  const isGiven = settings.host !== host.fallback || settings.port !== port.fallback;
  return isGiven && !isChosen ? issuerOf(settings, settings.port) : issuer;
}
