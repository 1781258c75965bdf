import { systemClock } from "../../base/clock.ts";
import { RotationError, StoreError } from "../../base/errors.ts";
import { printable } from "../../base/printable.ts";
import { type Custody, createCustody } from "../../rotation/custody/custody.ts";
import type { StoreDocument } from "../../rotation/custody/document.ts";
import { type Owner, commandedBy } from "../../rotation/custody/issuer-check.ts";
import type { WrappingKeys } from "../../rotation/custody/key-wrapping.ts";
import { listPresence, livePresence } from "../../rotation/custody/presence-records.ts";
import { readRegister } from "../../rotation/custody/read-register.ts";
import { lastCheckInText } from "../../rotation/explain/replicas.ts";
import { nextLookAt } from "../../rotation/rules/due.ts";
import { readingRights, rights, schema } from "../../rotation/store/postgres/schema.ts";
import { createCommandLog } from "../../service/config/logger.ts";
import { targetStore } from "../../service/config/settings.ts";
import { storeSettingsOf } from "../../service/config/store-settings.ts";
import { openStore } from "../../service/store/open-store.ts";
import { wrappingKeysOf } from "../../service/store/wrapping-keys.ts";
import { Command } from "../command.ts";
import { type Io, print, printNotice } from "../io.ts";
import { type Flags, closing } from "../managed-keys/open-keys.ts";
import { addSettings, settingsFrom } from "../setting-flags.ts";

export function commandOf(io: Io): Command {
  const migrate = new Command("migrate")
    .description("Copy the managed keys to a different store, which must be empty.")
    .option("--to <url>", "URL of the destination store, in the same form as for --store");
  addSettings(migrate, ["issuer", "data", "store", "wrappingKeyFile"])
    .notes(`
First stop every process that uses the old store. The command verifies the keys
before it writes them, and then reads them back and compares them. The wrapping
key stays the same: every process on the new store needs it, in
--wrapping-key-file or JWKSD_WRAPPING_KEYS.

If a URL contains a password, put the URL into the environment: the old store's
URL in JWKSD_STORE, the new store's in JWKSD_TO.

Examples:
  $ jwksd store migrate --issuer https://login.example.com \\
      --store sqlite:.jwksd/keys.db --to postgres://jwksd@db.example/jwksd
  $ JWKSD_TO=$(cat url) jwksd store migrate --issuer https://login.example.com`)
    .action((flags: Flags) => migrateStore(io, flags));

  const sql = new Command("sql")
    .description(
      "Print the SQL that creates the PostgreSQL tables and grants privileges on them to the database users.",
    )
    .notes(`
If its database user has the privilege to do so, jwksd creates the tables at its
first write. If not, have an administrator run the printed SQL.

Example:
  $ jwksd store sql`)
    .action(() => print(io, sqlText));

  return new Command("store").addCommand(migrate).addCommand(sql);
}

const sqlText = `${schema}

-- Privileges for a user that runs jwksd serve and commands; replace :user with its name.
${rights}

-- Privileges for a user that publishes and signs, but leaves every change to other users.
${readingRights}`;

async function migrateStore(io: Io, flags: Flags & { readonly to?: string }): Promise<void> {
  const settings = await settingsFrom(io, { ...flags });
  const from = storeSettingsOf(settings);
  const to = storeSettingsOf({ ...settings, store: targetStore(flags.to, io.environment) });
  const log = createCommandLog(settings, io);
  const keys = (await wrappingKeysOf(from, log)) ?? (await wrappingKeysOf(to, log));
  if (keys === undefined) {
    throw new StoreError(
      "ERR_WRAPPING_KEY_MISSING",
      "the wrapping key is missing, so the keys cannot be verified; set --wrapping-key-file or JWKSD_WRAPPING_KEYS",
    );
  }
  const source = await openStore(from, log);
  await closing(source, async () => {
    const target = await openStore(to, log, { create: true });
    const { records } = await closing(target, () => migrated(source, target, from.owner, keys));
    print(io, `Copied ${records.length} keys and compared them with the originals.`);
  });
  printNotice(
    io,
    `start jwksd on the new store now${to.commandFlags && `, with ${to.commandFlags}`}, and archive the old store`,
  );
}

/**
 * Copies an authentic document into an empty store, and then compares the two.
 *
 * @throws RotationError `ERR_TRANSITION` if a process uses the source, if the source has no keys, or if the destination
 * already has keys
 * @throws StoreError `ERR_STORE_CONFLICT` if one of the stores changed in the meantime
 */
async function migrated(
  source: Custody["register"],
  target: Custody["register"],
  owner: Owner,
  keys: WrappingKeys,
): Promise<StoreDocument> {
  const { text, version, now = systemClock.now() } = await readRegister(source);
  if (text === undefined) throw refusal("the source store has no keys");
  const custody = createCustody({ register: source, keys, issuerCheck: commandedBy(owner) });
  const document = await custody.open(text);
  const found = livePresence(await listPresence(source.presence), now, document);
  const [presence] = found.processes;
  if (presence !== undefined) {
    const checkIn = lastCheckInText(presence, { document, ...found, now });
    throw refusal(
      `the replica ${printable(presence.name)} is using the source store (last check-in ${checkIn}); stop it and every other process that uses this store`,
    );
  }
  if ((await target.read()).version !== undefined) {
    throw refusal("nothing was written, because the destination store is not empty; use an empty store");
  }
  await target.write(text, undefined, { due: nextLookAt(document, now) }).catch((error: unknown) => {
    if (error instanceof StoreError) throw error;
    // The document may have been written anyway. Reading it back shows whether it was.
  });
  if ((await target.read()).text === text && (await source.read(version)).version === version) return document;
  throw new StoreError(
    "ERR_STORE_CONFLICT",
    "one of the two stores changed during the copy; stop every process that uses them, and copy to an empty store",
  );
}

const refusal = (rule: string): RotationError => new RotationError("ERR_TRANSITION", rule);
