import { isDeepStrictEqual } from "node:util";
import { Command } from "commander";
import { ConfigError, StateError, StoreError } from "../../base/errors.ts";
import { commandedBy } from "../../rotation/custody/issuer-check.ts";
import { createCustody } from "../../rotation/custody/custody.ts";
import type { WrappingKeys } from "../../rotation/custody/wrapping.ts";
import { runningLeases } from "../../service/admin/replicas.ts";
import { isPermanent, permanentMs } from "../../rotation/rules/permanent-lease.ts";
import { createCommandLog } from "../../service/config/log.ts";
import { openStore, ownerOf, storePath, wrappingKeysOf } from "../../service/config/open-store.ts";
import type { Settings } from "../../service/config/setting-definitions.ts";
import { checkStore } from "../../service/config/settings.ts";
import { pendingMigration } from "../../rotation/store/postgres/pending-migration.ts";
import { postgresStores } from "../../rotation/store/postgres/postgres.ts";
import type { KeyEvent, KeyStore, Lease } from "../../rotation/store/store.ts";
import { type Io, print, tell } from "../io.ts";
import { type Flags, closing } from "./open-keys.ts";
import { addSettings, settingsFrom } from "../settings-options.ts";

export function storeCommand(io: Io): Command {
  const migrate = new Command("migrate").description("Make or update the schema of a PostgreSQL database.");
  addSettings(migrate.option("--dry-run", "print the SQL, and change nothing"), ["store"])
    .addHelpText(
      "after",
      `
jwksd serve does this by itself where its user may. Where it may not, have the
printed SQL run by somebody who may.

Examples:
  $ jwksd store migrate --dry-run --store postgres://admin@db.example/jwksd
  $ jwksd store migrate --store postgres://admin@db.example/jwksd`,
    )
    .action((flags: Flags) => migrateStore(io, flags));

  const copy = new Command("copy")
    .description("Copy the managed keys and their audit log into another store, which holds none yet.")
    .requiredOption("--from <url>", "the store to copy: sqlite:PATH or postgres://USER@HOST:PORT/DATABASE")
    .requiredOption("--to <url>", "the store to fill, in the same forms");
  addSettings(copy, ["issuer", "wrappingKeyFile"])
    .addHelpText(
      "after",
      `
Stop every jwksd on the old store first. The keys are verified before they are
written, and read back and compared after that. The wrapping key stays the same;
give it with --wrapping-key-file or JWKSD_WRAPPING_KEYS to whatever runs on the
new store.

Examples:
  $ jwksd store copy --issuer https://login.example.com \\
      --from sqlite:.jwksd/keys.db --to postgres://jwksd@db.example/jwksd`,
    )
    .action((flags: Flags) => copyStore(io, flags));

  return new Command("store").addCommand(migrate).addCommand(copy);
}

async function migrateStore(io: Io, flags: Flags): Promise<void> {
  const settings = await settingsFrom(io, { ...flags });
  const { store } = settings;
  if (store === undefined || storePath(settings) !== undefined) {
    throw new ConfigError(
      "ERR_OPTION_INVALID",
      "--store must name a PostgreSQL database; a SQLite store is updated when it is opened",
    );
  }
  const { steps, rights } = await pendingMigration(store);
  if (flags["dryRun"] === true) {
    const needed = `-- Rights of a user who may not make the schema; put the user in the place of :user.\n${rights}`;
    print(io, [...(steps.length === 0 ? ["-- The schema is the newest."] : steps), needed].join("\n"));
    return;
  }
  const stores = await postgresStores(store);
  await stores.close();
  print(io, steps.length === 0 ? `The schema of ${stores.name} is the newest already.` : `Updated ${stores.name}.`);
}

async function copyStore(io: Io, flags: Flags): Promise<void> {
  const settings = await settingsFrom(io, { ...flags });
  const [from, to] = [storeIn(settings, flags, "from"), storeIn(settings, flags, "to")];
  const log = createCommandLog(settings.logLevel, settings.jsonLogs, io);
  const keys = (await wrappingKeysOf(from, log)) ?? (await wrappingKeysOf(to, log));
  if (keys === undefined) {
    throw new StoreError(
      "ERR_WRAPPING_KEY_MISSING",
      "the wrapping key is missing, so the keys cannot be verified; name it with --wrapping-key-file or JWKSD_WRAPPING_KEYS",
    );
  }
  const source = await openStore(from, log);
  await closing(source, async () => {
    const target = await openStore(to, log, { create: true });
    const { records, events } = await closing(target, () => copied(source, target, settings, keys));
    print(io, `Copied ${records} keys and ${events} events, and compared them.`);
  });
  tell(io, `start jwksd with --store ${JSON.stringify(flags["to"])} now, and put the old store away`);
}

/** The settings with a store that a flag names. */
function storeIn(settings: Settings, flags: Flags, flag: "from" | "to"): Settings {
  const store = String(flags[flag]);
  checkStore(store, `--${flag}`);
  return { ...settings, store };
}

/**
 * Copies what is authentic into a store that holds nothing, and compares.
 *
 * @throws StateError `ERR_TRANSITION`: somebody runs on the source, it has no keys, or the target is in use
 * @throws StoreError `ERR_STORE_CONFLICT`: one of them has changed in the meantime
 */
async function copied(source: KeyStore, target: KeyStore, settings: Settings, keys: WrappingKeys) {
  const issuerCheck = commandedBy(ownerOf(settings));
  const from = createCustody({ store: source, keys, issuerCheck });
  const { revision, records, leases, now } = await from.store.load();
  const replica = runningLeases(leases, now).find((lease) => !isPermanent(lease));
  if (replica !== undefined) refuse(`the replica ${replica.name} runs on the store to copy; stop it, and all others`);
  if (records.length === 0) refuse("the store to copy holds no keys");
  if ((await target.load()).revision > 0) refuse("the store to fill is in use already; nothing was written");

  const events = await eventsOf(source);
  for (const lease of leases.filter(isPermanent)) await addCopy(target, lease);
  // The keys stay bound to whom they are.
  const to = createCustody({ store: target, keys, issuerCheck: () => from.owner });
  await to.store.commit(0, records, events);

  const written = await createCustody({ store: target, keys, issuerCheck }).store.load();
  const isSame = isDeepStrictEqual([written.records, await eventsOf(target)], [records, events]);
  if (isSame && (await source.load()).revision === revision) return { records: records.length, events: events.length };
  throw new StoreError(
    "ERR_STORE_CONFLICT",
    "one of the two stores has changed while it was copied; stop all that runs on them, and copy into a store that is empty",
  );
}

/** A copy that is served holds up the rotations of the new store, too, until it is published from there. */
async function addCopy(target: KeyStore, { id, name }: Lease): Promise<void> {
  const isThere = (await target.load()).leases.some((lease) => lease.id === id);
  if (!isThere) await target.join({ id, name }, permanentMs);
}

function refuse(rule: string): never {
  throw new StateError("ERR_TRANSITION", rule);
}

/** The audit log, oldest first. */
async function eventsOf(store: KeyStore): Promise<KeyEvent[]> {
  const events = (await store.events()).toReversed();
  return events.map(({ at, type, kid, use, reason }) => ({ at, type, kid, use, reason }));
}
