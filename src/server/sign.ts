import { systemClock } from "../clock.ts";
import { StateError } from "../errors.ts";
import type { Keyset } from "../keyset/keyset.ts";
import { readKeyset } from "../node/key-files.ts";
import { createProvider } from "../provider/provider.ts";
import { createKeyring } from "../manager/keyring.ts";
import { activeKey } from "../rotation/records.ts";
import type { Owner } from "../manager/owner.ts";
import type { Signer } from "../signer/signer.ts";
import { sqliteStore } from "../store/sqlite.ts";
import type { Claims, SignOptions } from "../token/sign.ts";
import type { Logger } from "./logger.ts";
import { exists, openManaged, storePath } from "./open-store.ts";
import { issuerOf } from "./publisher.ts";
import { type Settings, settingDefinitions } from "./settings.ts";
import { signersOf } from "./signers.ts";

/**
 * Signs a token with the active key of a configuration of `jwksd serve`; nothing has to be running.
 *
 * @throws ServiceError `ERR_FILE_UNREADABLE`, `ERR_NO_KEY_FILES`
 * @throws StateError `ERR_TRANSITION`: the store holds no key yet
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
    return sign(issuerOf(settings, settings.port), entries, claims, options);
  }
  const path = storePath(settings);
  if (path !== undefined) await checkHasKey(path);
  const { vault, policy } = await openManaged(settings, log);
  const { store } = vault;
  const { openSigner } = await signersOf(settings);
  const { signal } = new AbortController();
  const keyring = createKeyring(vault, { policy, openSigner, clock: systemClock, signal });
  try {
    // It notes how long its tokens may live.
    const { records } = await keyring.change((records) => ({ records, events: [] }));
    const active = activeKey(records, "sig");
    if (active === undefined) throw noKeyYet();
    const { signers } = await keyring.open([active]);
    const keyset = [{ keyId: active.kid, signer: signers.get(active.kid) as Signer }];
    return await sign(issuerFor(settings, vault.owner), keyset, claims, options, policy.maxTokenLifetimeSeconds);
  } finally {
    await keyring.close();
    await store.close();
  }
}

/** A wrapping key is not made for a store in which it would wrap nothing. @throws StateError `ERR_TRANSITION` */
async function checkHasKey(path: string): Promise<void> {
  // Opening a store that is not there says what is missing.
  if (!(await exists(path))) return;
  const store = await sqliteStore(path);
  const { records } = await store.load().finally(() => store.close());
  if (activeKey(records, "sig") === undefined) throw noKeyYet();
}

function noKeyYet(): StateError {
  return new StateError("ERR_TRANSITION", "the store holds no key yet; jwksd serve makes the first one");
}

/** As `serve` publishes it: what the store says, unless an address is given for keys that have no chosen issuer. */
function issuerFor(settings: Settings, { issuer, isChosen }: Owner): string {
  const { host, port } = settingDefinitions;
  const isGiven = settings.host !== host.fallback || settings.port !== port.fallback;
  return isGiven && !isChosen ? issuerOf(settings, settings.port) : issuer;
}

async function sign(
  issuer: string,
  keyset: Keyset,
  claims: Claims,
  options: SignOptions,
  maxTokenLifetimeSeconds?: number,
): Promise<string> {
  const provider = await createProvider({ issuer, keyset, maxTokenLifetimeSeconds });
  return provider.sign(claims, options);
}
