import { hostname } from "node:os";
import { dirname, join, resolve } from "node:path";
import { printable, shellWord } from "../../base/printable.ts";
import type { Owner } from "../../rotation/custody/issuer-check.ts";
import { type RotationPolicyOptions, policyNames } from "../../rotation/rules/policy.ts";
import { issuerOf } from "./addresses.ts";
import { hasPassword } from "./database-url.ts";
import { type Settings, flagName } from "./setting-definitions.ts";

export type StoreSettings = ReturnType<typeof storeSettingsOf>;

/** Settings, and what they say of the store: where it is, what opens it, and what it is told and asked. */
export function storeSettingsOf(settings: Settings) {
  const { issuer, data, store, wrappingKeyFile, replicaName } = settings;
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
  const owner: Owner = { issuer: issuerOf(settings, settings.port), isChosen: issuer !== undefined };
  const policy: RotationPolicyOptions = Object.fromEntries(policyNames.map((name) => [name, settings[name]]));
  return {
    ...settings,
    /** Whose keys are meant. */
    owner,
    /** The URL of a database server. */
    url: store ?? "",
    /** The absolute path of a file; `undefined` where the store is in a database server. */
    path,
    /** For messages. The URL of a database may hold a password. */
    name: store === undefined ? `the store in --data ${resolve(data)}` : inDatabase,
    /** The flag that names the store. */
    flag: store === undefined ? "--data" : "--store",
    /** The file with the last set of the store, beside it or in the data folder. */
    savedSet: join(path === undefined ? resolve(data) : dirname(path), "saved-set.json"),
    /** Said of the policy, and not checked: a store that holds keys has its own. */
    policy,
    /** What people call this process, as its line in the store can bear it. */
    replicaName: replicaName ?? (printable(hostname()).slice(0, 255).toWellFormed() || "jwksd"),
    /**
     * The flags by which a command on this machine finds the store and the issuer, as words of a shell. A URL with a password is left out: it
     * is in JWKSD_STORE.
     */
    commandFlags: Object.entries(flags)
      .flatMap(([name, value]) => (value === undefined ? [] : [`${flagName(name)} ${shellWord(value)}`]))
      .join(" "),
  };
}
