import { hostname } from "node:os";
import { dirname, join, resolve } from "node:path";
import { printable, shellWord } from "../../base/printable.ts";
import type { Owner } from "../../rotation/custody/issuer-check.ts";
import { type RotationPolicyOptions, policyNames } from "../../rotation/rules/policy.ts";
import { issuerOf } from "./addresses.ts";
import { hasPassword } from "./database-url.ts";
import { type Settings, flagName } from "./setting-definitions.ts";

/** The store of a configuration, what opens it, and what it is told and asked. */
export interface StoreSettings extends Pick<
  Settings,
  "issuer" | "requireStore" | "wrappingKeys" | "wrappingKeyFile" | "maxSavedSetSeconds" | "readyWithoutStore"
> {
  /** Whose keys are meant. */
  readonly owner: Owner;
  /** The URL of a database server. */
  readonly url: string;
  /** The absolute path of a file; `undefined` where the store is in a database server. */
  readonly path: string | undefined;
  /** For messages. The URL of a database may hold a password. */
  readonly name: string;
  /** The flag that names the store. */
  readonly flag: "--data" | "--store";
  /** The file with the last set of the store, beside it or in the data folder. */
  readonly savedSet: string;
  /** Said of the policy, and not checked: a store that holds keys has its own. */
  readonly policy: RotationPolicyOptions;
  /** What people call this process, as its line in the store can bear it. */
  readonly replicaName: string;
  /**
   * The flags by which a command on this machine finds the store and the issuer, as words of a shell. A URL with a password is left out: it
   * is in JWKSD_STORE.
   */
  readonly commandFlags: string;
}

export function storeSettingsOf(settings: Settings): StoreSettings {
  const { issuer, data, store, wrappingKeys, wrappingKeyFile, replicaName } = settings;
  const { requireStore, maxSavedSetSeconds, readyWithoutStore } = settings;
  const path =
    store === undefined
      ? resolve(data, "keys.db")
      : store.startsWith("sqlite:")
        ? resolve(store.slice("sqlite:".length))
        : undefined;
  const inDatabase = path === undefined ? "the database of --store" : `the store of --store, ${path},`;
  const url = path === undefined ? store : `sqlite:${path}`;
  const flags = {
    data: store === undefined ? resolve(data) : undefined,
    store: store === undefined || url === undefined || hasPassword(url) ? undefined : url,
    issuer,
    wrappingKeyFile: wrappingKeyFile && resolve(wrappingKeyFile),
  };
  return {
    issuer,
    requireStore,
    wrappingKeys,
    wrappingKeyFile,
    maxSavedSetSeconds,
    readyWithoutStore,
    owner: { issuer: issuerOf(settings, settings.port), isChosen: issuer !== undefined },
    url: store ?? "",
    path,
    name: store === undefined ? `the store in --data ${resolve(data)}` : inDatabase,
    flag: store === undefined ? "--data" : "--store",
    savedSet: join(path === undefined ? resolve(data) : dirname(path), "saved-set.json"),
    policy: Object.fromEntries(policyNames.map((name) => [name, settings[name]])),
    replicaName: replicaName ?? (printable(hostname()).slice(0, 255).toWellFormed() || "jwksd"),
    commandFlags: Object.entries(flags)
      .flatMap(([name, value]) => (value === undefined ? [] : [`${flagName(name)} ${shellWord(value)}`]))
      .join(" "),
  };
}
