import { dirname, join, resolve } from "node:path";
import type { Owner } from "../../rotation/custody/issuer-check.ts";
import { type RotationPolicyOptions, policyNames } from "../../rotation/rules/policy.ts";
import { issuerOf } from "./addresses.ts";
import type { Settings } from "./setting-definitions.ts";

/** The store of a configuration, and what opens it. */
export interface StoreSettings extends Pick<Settings, "issuer" | "requireStore" | "wrappingKeys" | "wrappingKeyFile"> {
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
}

export function storeSettingsOf(settings: Settings): StoreSettings {
  const { issuer, requireStore, wrappingKeys, wrappingKeyFile, data, store } = settings;
  const path =
    store === undefined
      ? resolve(data, "keys.db")
      : store.startsWith("sqlite:")
        ? resolve(store.slice("sqlite:".length))
        : undefined;
  const inDatabase = path === undefined ? "the database of --store" : `the store of --store, ${path},`;
  return {
    issuer,
    requireStore,
    wrappingKeys,
    wrappingKeyFile,
    owner: { issuer: issuerOf(settings, settings.port), isChosen: issuer !== undefined },
    url: store ?? "",
    path,
    name: store === undefined ? `the store in --data ${resolve(data)}` : inDatabase,
    flag: store === undefined ? "--data" : "--store",
    savedSet: join(path === undefined ? resolve(data) : dirname(path), "saved-set.json"),
    policy: Object.fromEntries(
      policyNames.flatMap((name) => (settings[name] === undefined ? [] : [[name, settings[name]]])),
    ),
  };
}
