import { hostname } from "node:os";
import { dirname, join, resolve } from "node:path";
import { printable, shellWord } from "../../base/printable.ts";
import type { Owner } from "../../rotation/custody/issuer-check.ts";
import { type RotationPolicyOptions, policyNames } from "../../rotation/rules/policy.ts";
import { issuerOf } from "./addresses.ts";
import { hasPassword } from "./database-scheme.ts";
import { type Settings, flagName } from "./setting-definitions.ts";

/** Settings for the configured store. */
export interface StoreSettings extends Pick<
  Settings,
  "issuer" | "requireStore" | "wrappingKeys" | "wrappingKeyFile" | "maxSavedSetSeconds" | "readyWithoutStore"
> {
  /** Owner of the keys. */
  readonly owner: Owner;
  /** URL of the database; empty if `--store` is not set. */
  readonly url: string;
  /** Absolute path of the store's file, or `undefined` if the store is on a database server. */
  readonly path: string | undefined;
  /** Name for messages. It must not contain the URL, because the URL may contain a password. */
  readonly name: string;
  /** Flag that selects the store. */
  readonly flag: "--data" | "--store";
  /** File with the saved set, next to the store or in the data folder. */
  readonly savedSet: string;
  /** Policy in the settings. It has not been checked, because a store with keys has its own policy. */
  readonly policy: RotationPolicyOptions;
  /** Name of this process, in a form that its presence record can contain. */
  readonly replicaName: string;
  /**
   * Flags that select the store and the issuer in a command on this machine, quoted for a shell. A URL with a password
   * is left out, because JWKSD_STORE contains it.
   */
  readonly commandFlags: string;
}

/** Returns the settings for the store. */
export function storeSettingsOf(settings: Settings): StoreSettings {
  const { issuer, data, store, wrappingKeys, wrappingKeyFile, replicaName } = settings;
  const { requireStore, maxSavedSetSeconds, readyWithoutStore } = settings;
  const path =
    store === undefined
      ? resolve(data, "keys.db")
      : store.startsWith("sqlite:")
        ? resolve(store.slice("sqlite:".length))
        : undefined;
  const inDatabase = path === undefined ? "the database in --store" : `the store in --store, ${path},`;
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
