import { systemClock } from "../../base/clock.ts";
import { StateError, StoreError } from "../../base/errors.ts";
import { printable } from "../../base/printable.ts";
import { type Custody, createCustody } from "../../rotation/custody/custody.ts";
import type { StoreDocument } from "../../rotation/custody/document.ts";
import { type Owner, commandedBy } from "../../rotation/custody/issuer-check.ts";
import { listPresence, livePresence } from "../../rotation/custody/presence.ts";
import { readRegister } from "../../rotation/custody/reading.ts";
import type { WrappingKeys } from "../../rotation/custody/wrapping.ts";
import { lastCheckInText } from "../../rotation/explain/replicas.ts";
import { nextLookAt } from "../../rotation/rules/due.ts";
import { readingRights, rights, schema } from "../../rotation/store/postgres/schema.ts";
import { createCommandLog } from "../../service/config/log.ts";
import { targetStore } from "../../service/config/settings.ts";
import { storeSettingsOf } from "../../service/config/store-settings.ts";
import { openStore } from "../../service/store/open-store.ts";
import { wrappingKeysOf } from "../../service/store/wrapping-keys.ts";
import { Command } from "../command.ts";
import { type Io, print, tell } from "../io.ts";
import { type Flags, closing } from "../keys/open-keys.ts";
import { addSettings, settingsFrom } from "../settings-options.ts";

export function commandOf(io: Io): Command {
  const migrate = new Command("migrate")
    .description("Copy the managed keys into another store, which must be empty.")
    .option("--to <url>", "the store to fill, in the forms of --store");
  addSettings(migrate, ["issuer", "data", "store", "wrappingKeyFile"])
    .notes(`
Stop every jwksd on the old store first. Its keys are verified before they are
written, then read back and compared. The wrapping key stays the same; give it
with --wrapping-key-file or JWKSD_WRAPPING_KEYS to whatever runs on the new
store.

Put a URL with a password into the environment: the store to copy into
JWKSD_STORE, the store to fill into JWKSD_TO.

Examples:
  $ jwksd store migrate --issuer https://login.example.com \\
      --store sqlite:.jwksd/keys.db --to postgres://jwksd@db.example/jwksd
  $ JWKSD_TO=$(cat url) jwksd store migrate --issuer https://login.example.com`)
    .action((flags: Flags) => migrateStore(io, flags));

  const sql = new Command("sql")
    .description("Print the SQL of the tables in PostgreSQL, and of the rights of their users.")
    .notes(`
jwksd creates the tables with its first write, if its user may. If not, let an
administrator run the printed SQL.

Example:
  $ jwksd store sql`)
    .action(() => print(io, sqlText));

  return new Command("store").addCommand(migrate).addCommand(sql);
}

const sqlText = `${schema}

-- The rights of a user for jwksd serve and commands; replace :user with its name.
${rights}

-- The rights of a user that publishes and signs but leaves every change to others.
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
      "the wrapping key is missing, so the keys cannot be verified; name it with --wrapping-key-file or JWKSD_WRAPPING_KEYS",
    );
  }
  const source = await openStore(from, log);
  await closing(source, async () => {
    const target = await openStore(to, log, { create: true });
    const { records } = await closing(target, () => migrated(source, target, from.owner, keys));
    print(io, `Copied ${records.length} keys, and compared them.`);
  });
  tell(
    io,
    `start jwksd on the new store now${to.commandFlags && `, with ${to.commandFlags}`}, and put the old store away`,
  );
}

/**
 * Copies an authentic document into an empty store and compares the two.
 *
 * @throws StateError `ERR_TRANSITION`: a process runs on the source, it has no keys, or the target is in use
 * @throws StoreError `ERR_STORE_CONFLICT`: one of them has changed in the meantime
 */
async function migrated(
  source: Custody["register"],
  target: Custody["register"],
  owner: Owner,
  keys: WrappingKeys,
): Promise<StoreDocument> {
  const { text, version, now = systemClock.now() } = await readRegister(source);
  if (text === undefined) throw refusal("the store to copy holds no keys");
  const custody = createCustody({ register: source, keys, issuerCheck: commandedBy(owner) });
  const document = await custody.open(text);
  const found = livePresence(await listPresence(source.presence), now, document);
  const [line] = found.processes;
  if (line !== undefined) {
    const seen = lastCheckInText(line, { document, ...found, now });
    throw refusal(
      `the replica ${printable(line.name)} runs on the store to copy (last word ${seen}); stop it, and all others`,
    );
  }
  if ((await target.read()).version !== undefined) {
    throw refusal("the store to fill is in use already; nothing was written");
  }
  await target.write(text, undefined, { due: nextLookAt(document, now) }).catch((error: unknown) => {
    if (error instanceof StoreError) throw error;
    // It may be written all the same: what is read back tells.
  });
  if ((await target.read()).text === text && (await source.read(version)).version === version) return document;
  throw new StoreError(
    "ERR_STORE_CONFLICT",
    "one of the two stores has changed while it was copied; stop all that runs on them, and copy into a store that is empty",
  );
}

const refusal = (rule: string): StateError => new StateError("ERR_TRANSITION", rule);
