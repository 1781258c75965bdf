import { Option, type Command } from "commander";
import { ConfigError } from "../errors.ts";
import type { RotationPolicy } from "../rotation/policy.ts";
import { checkRecords } from "../rotation/records.ts";
import { type Wrapping, createWrapping, newWrappingKey } from "../rotation/wrapping.ts";
import { createCommandLog } from "../server/log.ts";
import { exists, openManaged, policyOf, storePath } from "../server/managed.ts";
import type { SettingName, Settings } from "../server/settings.ts";
import { nearest } from "../server/nearest.ts";
import { type Signers, signersOf } from "../server/signers.ts";
import { memoryStore } from "../store/memory.ts";
import { sqliteStore } from "../store/sqlite.ts";
import type { KeyRecord, KeyStore } from "../store/store.ts";
import type { Io } from "./io.ts";
import { addSettings, settingsFrom, storeSettings } from "./settings-options.ts";

/** What a command line parser found. */
export type Flags = Readonly<Record<string, unknown>>;

/** The store of a configuration, open. */
export interface OpenStore {
  readonly io: Io;
  readonly settings: Settings;
  readonly store: KeyStore;
  readonly policy: RotationPolicy;
}

/** The store of a configuration with what it takes to make keys. */
export interface OpenKeys extends OpenStore {
  /** To which keys are bound. */
  readonly issuer: string;
  readonly wrapping: Wrapping;
  readonly signers: Signers;
}

/** Gives a command the settings by which it finds the managed keys, and `--json`. */
export function addStoreSettings(command: Command): Command {
  return addSettings(withJson(command), ofStore);
}

/** The same for a command that only looks. It takes all of them, so that it runs with the flags of `serve`, and lists the few it needs. */
export function addLookSettings(command: Command, more: readonly SettingName[] = []): Command {
  return addSettings(withJson(command), ofStore, ["issuer", "data", "store", "wrappingKeyFile", ...more]);
}

const ofStore: readonly SettingName[] = ["issuer", ...storeSettings];
const withJson = (command: Command): Command => command.option("--json", "print JSON");

/** Gives a command a kid. One in 64 thumbprints begins with a dash, so what is no option of the command is the kid. */
export function takesKid(command: Command, name = "<kid>", description = "jwksd keys lists them"): Command {
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
  new Option("--use <use>", "of signing or of encryption keys").choices(["sig", "enc"]);

/** Runs with the store only, which needs no wrapping key. @throws see `openManaged` */
export async function withStore<T>(io: Io, flags: Flags, action: (open: OpenStore) => Promise<T>): Promise<T> {
  const settings = await managedSettings(io, flags);
  const path = storePath(settings);
  // The one that makes no file says what is missing.
  const { store, policy } = (await exists(path))
    ? { store: await sqliteStore(path), policy: policyOf(settings) }
    : await openManaged(settings, createCommandLog(settings.logLevel, settings.jsonLogs, io));
  return closing(store, () => action({ io, settings, store, policy }));
}

/**
 * Runs with the store and the wrapping keys. With `create`, a store that is not there is made; with `dryRun` as well, in memory.
 * `prepare` runs before, so that a first command that it refuses leaves nothing behind.
 *
 * @throws see `openManaged`
 */
export async function withKeys<T>(
  io: Io,
  flags: Flags,
  options: {
    readonly create?: boolean;
    readonly dryRun?: boolean;
    readonly prepare?: (signers: Signers) => Promise<void>;
  },
  action: (open: OpenKeys) => Promise<T>,
): Promise<T> {
  const { create = false, dryRun = false, prepare } = options;
  const settings = await managedSettings(io, flags);
  const signers = await signersOf(settings);
  await prepare?.(signers);
  if (create && dryRun && !(await exists(storePath(settings)))) {
    const issuer = "dry run";
    const wrapping = await createWrapping([newWrappingKey()], issuer);
    return action({ io, settings, store: memoryStore(), policy: policyOf(settings), issuer, wrapping, signers });
  }
  const log = createCommandLog(settings.logLevel, settings.jsonLogs, io);
  const { store, policy, issuer, wrappingKeys } = await openManaged(settings, log, { create });
  return closing(store, async () => {
    const wrapping = await createWrapping(wrappingKeys, issuer);
    return action({ io, settings, store, policy, issuer, wrapping, signers });
  });
}

/** The records of a store, checked. */
export async function recordsOf(store: KeyStore): Promise<readonly KeyRecord[]> {
  const { records } = await store.load();
  checkRecords(records);
  return records;
}

async function managedSettings(io: Io, flags: Flags): Promise<Settings> {
  const settings = await settingsFrom(io, { ...flags });
  if (settings.keys === undefined) return settings;
  throw new ConfigError(
    "ERR_OPTION_INVALID",
    `the keys of this configuration are those of ${settings.keys}, which others manage; jwksd manages keys where "keys" is not set`,
  );
}

async function closing<T>(store: KeyStore, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } finally {
    await store.close();
  }
}
