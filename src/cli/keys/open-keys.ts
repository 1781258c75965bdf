import { Option, type Command } from "commander";
import { systemClock } from "../../base/clock.ts";
import { ConfigError, type StoreError } from "../../base/errors.ts";
import { type Keyring, type KeyringOptions, createKeyring } from "../../rotation/manager/keyring.ts";
import { type RotationPolicy, policyDefaults, policyNames } from "../../rotation/rules/policy.ts";
import { checkRecords } from "../../rotation/rules/records.ts";
import { commandedBy } from "../../rotation/custody/issuer-check.ts";
import { type Custody, createCustody } from "../../rotation/custody/custody.ts";
import { newWrappingKey, readWrappingKeys } from "../../rotation/custody/wrapping.ts";
import { commandPolicy } from "../../service/config/command-policy.ts";
import { createCommandLog } from "../../service/config/log.ts";
import {
  type OpenOptions,
  exists,
  isUnreadable,
  neededKeys,
  openManaged,
  openStore,
  ownerOf,
  policyOf,
  storePath,
  wrappingKeysOf,
} from "../../service/config/open-store.ts";
import { type SettingName, type Settings, flagName } from "../../service/config/setting-definitions.ts";
import { nearest } from "../../base/nearest.ts";
import { type Signers, signersOf } from "../../service/config/signers.ts";
import { memoryStore } from "../../rotation/store/memory.ts";
import type { KeyRecord, KeyStore, Lease } from "../../rotation/store/store.ts";
import { errorText } from "../error-text.ts";
import { type Io, tell } from "../io.ts";
import { addSettings, ofReplica, settingsFrom, storeSettings } from "../settings-options.ts";

/** What a command line parser found. */
export type Flags = Readonly<Record<string, unknown>>;

/** The keys of a configuration, opened for a command. */
export interface CommandKeys {
  readonly io: Io;
  readonly settings: Settings;
  readonly custody: Custody;
  readonly keyring: Keyring;
  readonly signers: Signers;
}

/** Gives a command the settings by which it finds the managed keys, and `--json`. */
export function addStoreSettings(command: Command): Command {
  return ofReplica(addSettings(withJson(command), ofStore));
}

/** Gives a command that only reads the store all flags of `serve`, so that an operator can repeat them. Its help lists the few that it needs. */
export function addLookSettings(command: Command, more: readonly SettingName[] = []): Command {
  return addSettings(withJson(command), ofStore, ["issuer", "data", "store", "wrappingKeyFile", ...more]);
}

const ofStore: readonly SettingName[] = ["issuer", ...storeSettings];
const withJson = (command: Command): Command => command.option("--json", "print JSON");

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

/**
 * Looks at the store. That needs no wrapping key; what cannot be verified is shown all the same, and it is told that it is not.
 *
 * @throws see `openStore`
 */
export async function look(io: Io, flags: Flags) {
  const settings = await managedSettings(io, flags);
  const log = createCommandLog(settings.logLevel, settings.jsonLogs, io);
  const store = await openStore(settings, log);
  const withPolicy = (found: Awaited<ReturnType<typeof lookAt>>) => {
    const { records, replicas } = found;
    if (records.length > 0) tellPolicy(io, settings, replicas.leases);
    return { ...found, policy: commandPolicy(settings, replicas.leases, log) };
  };
  return closing(store, async () => {
    let why = "the wrapping key is missing (--wrapping-key-file, JWKSD_WRAPPING_KEYS)";
    const keys = await wrappingKeysOf(settings, log).catch((error: unknown) => {
      if (!isUnreadable(error)) throw error;
      why = error.message;
      io.exitCode = 1;
      return undefined;
    });
    if (keys === undefined) {
      const found = await lookAt(store);
      tell(io, `what is shown is not verified: ${why}${neededKeys(found)}`);
      return { ...withPolicy(found), isVerified: false, owner: ownerOf(settings) };
    }
    let problem: StoreError | undefined;
    const accepts = (found: StoreError): boolean => {
      problem = found;
      return true;
    };
    const custody = createCustody({ store, keys, issuerCheck: commandedBy(ownerOf(settings)), accepts });
    const found = await lookAt(custody.store);
    if (problem !== undefined) {
      tell(io, `what is shown is not verified: ${errorText(problem)}`);
      io.exitCode = 1;
    }
    return { ...withPolicy(found), isVerified: problem === undefined, owner: custody.owner };
  });
}

/** What is in the store of a configuration. */
export type StoreContent = Awaited<ReturnType<typeof look>>;

async function lookAt(store: KeyStore) {
  const { records, mac, revision, leases, now } = await store.load();
  checkRecords(records);
  return { records, mac, replicas: { revision, leases, now } };
}

/** Tells whose policy it is where no replica says one: after a stop, serve may have had another. */
export function tellPolicy(io: Io, settings: Settings, leases: readonly Lease[]): void {
  const missing = policyNames.find((name) => settings[name] === undefined);
  if (missing === undefined || leases.length > 0) return;
  tell(
    io,
    `no replica runs, so the policy is that of flags, environment, --config and defaults, such as ${flagName(missing)} ${policyDefaults[missing]}`,
  );
}

/** Runs with the store alone, without its keys. @throws see `openStore` */
export async function withStore<T>(io: Io, flags: Flags, action: (store: KeyStore) => Promise<T>): Promise<T> {
  const settings = await managedSettings(io, flags);
  const store = await openStore(settings, createCommandLog(settings.logLevel, settings.jsonLogs, io));
  return closing(store, () => action(store));
}

interface WithKeysOptions extends OpenOptions, Pick<KeyringOptions, "passesOverLost"> {
  readonly dryRun?: boolean;
  readonly prepare?: (signers: Signers) => Promise<void>;
}

/**
 * Runs with the store and the wrapping keys. With `create`, a store that is not there is made; with `dryRun` as well, in memory.
 * `prepare` runs before, so that a first command that it refuses leaves nothing behind.
 *
 * @throws see `openManaged`; loading throws besides what that of a `Custody` throws
 */
export async function withKeys<T>(
  io: Io,
  flags: Flags,
  { dryRun = false, prepare, passesOverLost = false, ...options }: WithKeysOptions,
  action: (keys: CommandKeys) => Promise<T>,
): Promise<T> {
  const settings = await managedSettings(io, flags);
  const signers = await signersOf(settings);
  await prepare?.(signers);
  const path = storePath(settings);
  if (options.create === true && dryRun && path !== undefined && !(await exists(path))) {
    const keys = await readWrappingKeys([newWrappingKey()]);
    const custody = createCustody({ store: memoryStore(), keys, issuerCheck: commandedBy(ownerOf(settings)) });
    return run(custody, policyOf(settings));
  }
  const log = createCommandLog(settings.logLevel, settings.jsonLogs, io);
  const { custody, leases } = await openManaged(settings, log, options);
  return closing(custody.store, () => run(custody, commandPolicy(settings, leases, log)));

  async function run(custody: Custody, policy: RotationPolicy): Promise<T> {
    const { signal } = new AbortController();
    const keyring = createKeyring(custody, { ...signers, policy, clock: systemClock, signal, passesOverLost });
    return action({ io, settings, custody, keyring, signers }).finally(() => keyring.close());
  }
}

/** The records of a store, checked. */
export const recordsOf = async (store: KeyStore): Promise<readonly KeyRecord[]> => (await lookAt(store)).records;

async function managedSettings(io: Io, flags: Flags): Promise<Settings> {
  const settings = await settingsFrom(io, { ...flags });
  if (settings.keys === undefined) return settings;
  throw new ConfigError(
    "ERR_OPTION_INVALID",
    `the keys of this configuration are those of ${settings.keys}, which others manage; jwksd manages keys where "keys" is not set`,
  );
}

export async function closing<T>(store: KeyStore, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } finally {
    await store.close();
  }
}
