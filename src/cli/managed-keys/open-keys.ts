import { Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { nearest } from "../../base/closest-name.ts";
import { type StoreError, asJwksdError, invalidOption } from "../../base/errors.ts";
import { type Custody, createCustody } from "../../rotation/custody/custody.ts";
import { type StoreDocument, emptyDocument, parseDocument } from "../../rotation/custody/document.ts";
import { type Owner, commandedBy } from "../../rotation/custody/issuer-check.ts";
import { unsealed } from "../../rotation/custody/mac.ts";
import { listPresence, livePresence } from "../../rotation/custody/presence-records.ts";
import { readRegister } from "../../rotation/custody/read-register.ts";
import type { StoreView } from "../../rotation/explain/replicas.ts";
import { type Keyring, createKeyring } from "../../rotation/manager/key-changes.ts";
import { type StoreAccess, createStoreAccess } from "../../rotation/manager/store-access.ts";
import type { KeyManagerEvent } from "../../rotation/manager/types.ts";
import { rotationPolicy } from "../../rotation/rules/policy.ts";
import { createCommandLog } from "../../service/config/logger.ts";
import { type SettingName, type Settings, settingsWith } from "../../service/config/setting-definitions.ts";
import { type Signers, signersOf } from "../../service/config/signers.ts";
import { storeSettingsOf } from "../../service/config/store-settings.ts";
import { type OpenOptions, emptyCustody, openManaged, openStore } from "../../service/store/open-store.ts";
import { exists, isUnreadable, neededKeys, wrappingKeysOf } from "../../service/store/wrapping-keys.ts";
import type { Command } from "../command.ts";
import { errorText } from "../error-text.ts";
import { type Io, printNotice } from "../io.ts";
import { addSettings, settingsFrom } from "../setting-flags.ts";

/** Flags that the command-line parser returned. */
export type Flags = Readonly<Record<string, unknown>>;

/** The keys of a configuration, opened for a command. */
export interface CommandKeys {
  readonly io: Io;
  readonly settings: Settings;
  readonly custody: Custody;
  readonly access: StoreAccess;
  readonly keyring: Keyring;
  readonly signers: Signers;
  /** The document as it was when the command started. */
  readonly document: StoreDocument;
}

/**
 * Extends a command with the `--json` flag and the settings that locate the store.
 *
 * @param more additional settings for the command
 */
export function addStoreSettings(command: Command, ...more: readonly SettingName[]): Command {
  return addSettings(command.option("--json", "JSON output"), [...settingsWith("store"), ...more]);
}

/**
 * Adds a kid argument to a command. Anything that is not an option is read as the kid, because one thumbprint in 64
 * begins with a dash.
 */
export function takesKid(
  command: Command,
  name = "<kid>",
  description = "the key's kid, or a prefix of at least 6 characters (to list kids, run: jwksd keys)",
): Command {
  return command
    .argument(name, description)
    .allowUnknownOption()
    .allowExcessArguments()
    .hook("preAction", ({ args }) => {
      if (args.length <= 1) return;
      const options = command.options.flatMap(({ long }) => long ?? []);
      const hintFor = (arg: string): string | undefined => (arg.startsWith("-") ? nearest(arg, options) : undefined);
      const unknown = args.find((arg) => hintFor(arg) !== undefined) ?? args.findLast((arg) => arg.startsWith("-"));
      if (unknown === undefined) command.error(`error: too many arguments; expected one kid, got ${args.length}`);
      const hint = hintFor(unknown);
      command.error(`error: unknown option '${unknown}'${hint === undefined ? "" : `\n(Did you mean ${hint}?)`}`);
    });
}

export const useOption = (): Option =>
  new Option("--use <use>", "use of the key: signing or encryption").choices(["sig", "enc"]);

/** The configured store's content. */
export interface StoreContent extends StoreView {
  readonly document: StoreDocument;
  readonly isVerified: boolean;
  readonly owner: Owner;
}

/**
 * Reads the store. The wrapping key is not required: content that cannot be verified is still returned, and a notice is
 * printed.
 *
 * @throws the same errors as `openStore`
 */
export async function readStore(io: Io, flags: Flags): Promise<StoreContent> {
  const settings = await managedSettings(io, flags);
  const log = createCommandLog(settings, io);
  const store = storeSettingsOf(settings);
  const register = await openStore(store, log);
  return closing(register, async () => {
    const { text, now = systemClock.now() } = await readRegister(register);
    const found = await opened(text);
    const list = await listPresence(register.presence).catch((error: unknown) => {
      printNotice(io, `the presence records cannot be read: ${errorText(asJwksdError(error))}`);
      io.exitCode = 1;
      return listPresence(undefined);
    });
    return { ...found, ...livePresence(list, now, found.document), now };
  });

  async function opened(text: string | undefined): Promise<Pick<StoreContent, "document" | "isVerified" | "owner">> {
    const { owner, policy } = store;
    if (text === undefined) return { document: emptyDocument(owner, rotationPolicy(policy)), isVerified: true, owner };
    let problem = "the wrapping key is missing (--wrapping-key-file, JWKSD_WRAPPING_KEYS)";
    const keys = await wrappingKeysOf(store, log).catch((error: unknown) => {
      if (!isUnreadable(error)) throw error;
      problem = error.message;
      io.exitCode = 1;
      return undefined;
    });
    if (keys === undefined) {
      printNotice(io, `this output is not verified: ${problem}${neededKeys(text)}`);
      return { document: parseDocument(unsealed(text)), isVerified: false, owner };
    }
    let mismatch: StoreError | undefined;
    const accepts = (found: StoreError): boolean => {
      mismatch = found;
      return true;
    };
    const custody = createCustody({ register, keys, issuerCheck: commandedBy(owner), accepts });
    const document = await custody.open(text);
    if (mismatch !== undefined) {
      printNotice(io, `this output is not verified: ${errorText(mismatch)}`);
      io.exitCode = 1;
    }
    return { document, isVerified: mismatch === undefined, owner: custody.owner };
  }
}

/**
 * Runs an action with the store and the wrapping keys. With `create`, creates a store if there is none; with both
 * `create` and `dryRun`, creates it only in memory.
 *
 * @throws the same errors as `openManaged` and `StoreAccess.read`
 */
export async function withKeys<T>(
  io: Io,
  flags: Flags,
  { dryRun = false, ...options }: OpenOptions & { readonly dryRun?: boolean },
  action: (keys: CommandKeys) => Promise<T>,
): Promise<T> {
  const settings = await managedSettings(io, flags);
  const signers = await signersOf(settings);
  const store = storeSettingsOf(settings);
  const run = (custody: Custody): Promise<T> => withCustody(io, { settings, signers, custody }, action);
  if (options.create === true && dryRun && store.path !== undefined && !(await exists(store.path)))
    return run(await emptyCustody(store));
  const log = createCommandLog(settings, io);
  const { custody } = await openManaged(store, log, options);
  return closing(custody.register, () => run(custody));
}

/**
 * Runs an action with the keys in custody.
 *
 * @throws the same errors as `StoreAccess.read`
 */
export async function withCustody<T>(
  io: Io,
  { settings, signers, custody }: Pick<CommandKeys, "settings" | "signers" | "custody">,
  action: (keys: CommandKeys) => Promise<T>,
): Promise<T> {
  const { signal } = new AbortController();
  const policy = rotationPolicy(storeSettingsOf(settings).policy);
  const access = createStoreAccess(custody, { policy, clock: systemClock, signal });
  const keyring = createKeyring({ custody, access, clock: systemClock, signal, report }, signers);
  try {
    const { document } = await access.read();
    return await action({ io, settings, custody, access, keyring, signers, document });
  } finally {
    await keyring.close();
  }

  function report(event: KeyManagerEvent): void {
    if (event.type !== "orphaned") return;
    const { uri, isDestroyed } = event;
    printNotice(io, `${uri} was generated but is not needed${isDestroyed ? ", so it was destroyed" : "; destroy it"}`);
  }
}

/** Returns the current state of the store and its live processes. */
export async function viewOf(access: CommandKeys["access"]): Promise<StoreView> {
  // Presence is read first, so that no presence record is more recent than the document.
  const list = await access.presence();
  const { document, now } = await access.read();
  return { document, ...livePresence(list, now, document), now };
}

/** Returns the settings. @throws ConfigError `ERR_OPTION_INVALID` if jwksd does not manage the configuration's keys */
export async function managedSettings(io: Io, flags: Flags): Promise<Settings> {
  const settings = await settingsFrom(io, { ...flags });
  if (settings.keys === undefined) return settings;
  throw invalidOption(
    `this configuration uses the keys in ${settings.keys}, which jwksd does not manage; remove "keys" to have jwksd manage the keys`,
  );
}

/** Runs an action. Closes the store afterwards. */
export async function closing<T>(register: Custody["register"], action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } finally {
    await register.close?.();
  }
}
