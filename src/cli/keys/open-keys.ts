import { Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { type StoreError, asJwksdError, invalidOption } from "../../base/errors.ts";
import { nearest } from "../../base/nearest.ts";
import { type Custody, createCustody } from "../../rotation/custody/custody.ts";
import { type StoreDocument, emptyDocument, parseDocument } from "../../rotation/custody/document.ts";
import { type Owner, commandedBy } from "../../rotation/custody/issuer-check.ts";
import { unsealed } from "../../rotation/custody/mac.ts";
import { listPresence, livePresence } from "../../rotation/custody/presence.ts";
import { readRegister } from "../../rotation/custody/reading.ts";
import type { StoreView } from "../../rotation/explain/replicas.ts";
import { type Keyring, createKeyring } from "../../rotation/manager/keyring.ts";
import { type StoreAccess, createStoreAccess } from "../../rotation/manager/store-access.ts";
import type { ManagerEvent } from "../../rotation/manager/types.ts";
import { rotationPolicy } from "../../rotation/rules/policy.ts";
import { createCommandLog } from "../../service/config/log.ts";
import { type SettingName, type Settings, settingsWith } from "../../service/config/setting-definitions.ts";
import { type Signers, signersOf } from "../../service/config/signers.ts";
import { storeSettingsOf } from "../../service/config/store-settings.ts";
import { type OpenOptions, emptyCustody, openManaged, openStore } from "../../service/store/open-store.ts";
import { exists, isUnreadable, neededKeys, wrappingKeysOf } from "../../service/store/wrapping-keys.ts";
import type { Command } from "../command.ts";
import { errorText } from "../error-text.ts";
import { type Io, tell } from "../io.ts";
import { addSettings, settingsFrom } from "../settings-options.ts";

/** What a command line parser found. */
export type Flags = Readonly<Record<string, unknown>>;

/** The keys of a configuration, opened for a command. */
export interface CommandKeys {
  readonly io: Io;
  readonly settings: Settings;
  readonly custody: Custody;
  readonly access: StoreAccess;
  readonly keyring: Keyring;
  readonly signers: Signers;
  /** As it was when the command began. */
  readonly document: StoreDocument;
}

/** Adds `--json` and the settings by which a command finds the store. @param more other settings that the command takes */
export function addStoreSettings(command: Command, ...more: readonly SettingName[]): Command {
  return addSettings(command.option("--json", "print JSON"), [...settingsWith("store"), ...more]);
}

/** Gives a command a kid. One in 64 thumbprints begins with a dash, so what is no option of the command is the kid. */
export function takesKid(
  command: Command,
  name = "<kid>",
  description = "kid of the key, or its first 6 or more characters; jwksd keys lists them",
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
      if (unknown === undefined) command.error(`error: too many arguments; one kid is expected, not ${args.length}`);
      const hint = hintFor(unknown);
      command.error(`error: unknown option '${unknown}'${hint === undefined ? "" : `\n(Did you mean ${hint}?)`}`);
    });
}

export const useOption = (): Option =>
  new Option("--use <use>", "kind of the key: it signs, or others encrypt to it").choices(["sig", "enc"]);

/** What is in the store of a configuration. */
export interface StoreContent extends StoreView {
  readonly document: StoreDocument;
  readonly isVerified: boolean;
  readonly owner: Owner;
}

/**
 * Reads the store. That needs no wrapping key; what cannot be verified is shown all the same, and it is told that it is not.
 *
 * @throws see `openStore`
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
      tell(io, `the presence records cannot be read: ${errorText(asJwksdError(error))}`);
      io.exitCode = 1;
      return listPresence(undefined);
    });
    return { ...found, ...livePresence(list, now, found.document), now };
  });

  async function opened(text: string | undefined): Promise<Pick<StoreContent, "document" | "isVerified" | "owner">> {
    const { owner, policy } = store;
    if (text === undefined) return { document: emptyDocument(owner, rotationPolicy(policy)), isVerified: true, owner };
    let why = "the wrapping key is missing (--wrapping-key-file, JWKSD_WRAPPING_KEYS)";
    const keys = await wrappingKeysOf(store, log).catch((error: unknown) => {
      if (!isUnreadable(error)) throw error;
      why = error.message;
      io.exitCode = 1;
      return undefined;
    });
    if (keys === undefined) {
      tell(io, `what is shown is not verified: ${why}${neededKeys(text)}`);
      return { document: parseDocument(unsealed(text)), isVerified: false, owner };
    }
    let problem: StoreError | undefined;
    const accepts = (found: StoreError): boolean => {
      problem = found;
      return true;
    };
    const custody = createCustody({ register, keys, issuerCheck: commandedBy(owner), accepts });
    const document = await custody.open(text);
    if (problem !== undefined) {
      tell(io, `what is shown is not verified: ${errorText(problem)}`);
      io.exitCode = 1;
    }
    return { document, isVerified: problem === undefined, owner: custody.owner };
  }
}

/**
 * Runs with the store and the wrapping keys. With `create`, a store that is not there is made; with `dryRun` as well, in memory.
 *
 * @throws see `openManaged` and `StoreAccess.read`
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
  if (options.create === true && dryRun && store.path !== undefined && !(await exists(store.path)))
    return run(await emptyCustody(store));
  const log = createCommandLog(settings, io);
  const { custody } = await openManaged(store, log, options);
  return closing(custody.register, () => run(custody));

  function report(event: ManagerEvent): void {
    if (event.type !== "orphaned") return;
    const { uri, isDestroyed } = event;
    tell(io, `${uri} was generated, and nothing uses it${isDestroyed ? ", so it was destroyed again" : ""}`);
  }

  async function run(custody: Custody): Promise<T> {
    const { signal } = new AbortController();
    const policy = rotationPolicy(store.policy);
    const access = createStoreAccess(custody, { policy, clock: systemClock, signal });
    const keyring = createKeyring({ custody, access, clock: systemClock, signal, report }, signers);
    try {
      const { document } = await access.read();
      return await action({ io, settings, custody, access, keyring, signers, document });
    } finally {
      await keyring.close();
    }
  }
}

/** The store and its living processes, as they are now. */
export async function viewOf(access: CommandKeys["access"]): Promise<StoreView> {
  // In this order, no record is newer than the store.
  const list = await access.presence();
  const { document, now } = await access.read();
  return { document, ...livePresence(list, now, document), now };
}

export async function managedSettings(io: Io, flags: Flags): Promise<Settings> {
  const settings = await settingsFrom(io, { ...flags });
  if (settings.keys === undefined) return settings;
  throw invalidOption(
    `the keys of this configuration are those of ${settings.keys}, which others manage; jwksd manages keys where "keys" is not set`,
  );
}

export async function closing<T>(register: Custody["register"], action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } finally {
    await register.close?.();
  }
}
