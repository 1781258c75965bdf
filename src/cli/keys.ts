import { Command } from "commander";
import { type Change, replace } from "../rotation/advance.ts";
import { type NewKey, applyCommand } from "../rotation/commands.ts";
import { activeKey, announcedKey, jweOf } from "../rotation/records.ts";
import type { Wrapping } from "../rotation/wrapping.ts";
import type { KeyRecord, KeyUse } from "../store/store.ts";
import { type ChangeFlags, addChangeFlags, changeKeys } from "./change-keys.ts";
import { destroyCommand } from "./destroy-key.ts";
import { exportCommand } from "./export-keys.ts";
import { importCommand } from "./import-keys.ts";
import type { Io } from "./io.ts";
import { addListFlags, listKeys } from "./list-keys.ts";
import { addNewKeyFlags } from "./make-keys.ts";
import { type Flags, recordsOf, takesKid, withKeys } from "./managed-keys.ts";

export function keysCommand(io: Io): Command {
  return new Command("keys")
    .description("List the managed keys, and change them one step at a time.")
    .addCommand(listCommand(io), { isDefault: true })
    .addCommand(announceCommand(io))
    .addCommand(stepCommand(io, "activate", "Let an announced key sign now; the active key retires."))
    .addCommand(stepCommand(io, "retire", "Retire the active key; the announced key takes its place."))
    .addCommand(stepCommand(io, "remove", "Remove a retiring or announced key, for good."))
    .addCommand(revokeCommand(io))
    .addCommand(destroyCommand(io))
    .addCommand(importCommand(io))
    .addCommand(exportCommand(io))
    .addCommand(rewrapCommand(io))
    .addHelpText(
      "after",
      `
jwksd serve takes each planned step by itself; these commands are for everything else. Commands that change keys have --dry-run,
which prints the exact change and what it means for verifiers. All commands have --json. A jwksd serve on the same store takes
up a change within a second.

Examples:
  $ jwksd keys                            list the keys, and the next step of each
  $ jwksd keys revoke KID --dry-run       until when caches may still trust a key that has leaked
  $ jwksd keys import key.pem             take over a key from elsewhere
  $ jwksd keys help import                the flags of one command`,
    );
}

function listCommand(io: Io): Command {
  const command = new Command("list").description("List the managed keys, as jwksd keys without a command does.");
  return addListFlags(command)
    .addHelpText(
      "after",
      `
A key in an HSM or key service has its URI below it; --json has the URI as uri. The next step of a key follows from the policy,
so use the environment, --config or flags of jwksd serve; jwksd help serve lists them.`,
    )
    .allowExcessArguments()
    .action((flags: Flags) => {
      // It is the default, so what it is given is a command that does not exist.
      const [unknown] = command.args;
      if (unknown !== undefined)
        command.error(`error: unknown command '${unknown}'; jwksd help keys lists the commands`);
      return listKeys(io, flags);
    });
}

function announceCommand(io: Io): Command {
  const command = new Command("announce").description(
    "Publish a new key. It becomes active when every cache knows it; the first signing or encryption key, at once.",
  );
  return addChangeFlags(addNewKeyFlags(command))
    .addHelpText(
      "after",
      `
Examples:
  $ jwksd keys announce                   the next signing key, as jwksd rotate does
  $ jwksd keys announce --use enc         the first encryption key, or the next one`,
    )
    .action((flags: ChangeFlags & { readonly use: KeyUse; readonly alg?: string }) =>
      withKeys(io, flags, {}, async (open) => {
        const newKey = { use: flags.use, alg: flags.alg };
        await changeKeys(open, { flags, breaks: false, newKey }, (records, now, key) =>
          applyCommand(records, { type: "announce", key: key as NewKey }, open.policy, now),
        );
      }),
    );
}

const destroyHelp = `
With --destroy-external, a key in an HSM or key service is also destroyed there, for good, even an imported key that jwksd did
not make. --dry-run names the key.
`;

function stepCommand(io: Io, type: "activate" | "retire" | "remove", description: string): Command {
  return addChangeFlags(takesKid(new Command(type).description(description)), {
    force: true,
  })
    .addHelpText(
      "after",
      `
A step that would break verifications is refused; the message says when the step will be safe. --force --yes takes it now.
${type === "remove" ? destroyHelp : ""}
Examples:
  $ jwksd keys ${type} KID --dry-run
  $ jwksd keys ${type} KID
  $ jwksd keys ${type} KID --force --yes`,
    )
    .action((kid: string, flags: ChangeFlags) =>
      withKeys(io, flags, {}, async (open) => {
        const force = flags.force === true;
        await changeKeys(open, { flags, breaks: force }, (records, now) =>
          applyCommand(records, { type, kid, force }, open.policy, now),
        );
      }),
    );
}

function revokeCommand(io: Io): Command {
  const command = new Command("revoke").description(
    "Remove a key at once and for good, because others may know its private half.",
  );
  return addChangeFlags(takesKid(command), { yes: true })
    .addHelpText(
      "after",
      `
If the key was active, the announced key takes its place, else a new key. Caches may trust the revoked key for up to 7,200 seconds,
or 300 if the rotation mode (--rotation-mode, or a rotation) has been on for 7,200. --dry-run prints which.
${destroyHelp}
Examples:
  $ jwksd keys revoke KID --dry-run
  $ jwksd keys revoke KID --yes`,
    )
    .action((kid: string, flags: ChangeFlags) =>
      withKeys(io, flags, {}, async (open) => {
        const records = await recordsOf(open.store);
        const use = records.find((record) => record.kid === kid)?.use ?? "sig";
        const isNeeded = activeKey(records, use)?.kid === kid && announcedKey(records, use) === undefined;
        const newKey = isNeeded ? { use } : undefined;
        await changeKeys(open, { flags, breaks: true, newKey, mayBeLost: true }, (records, now, replacement) =>
          applyCommand(records, { type: "revoke", kid, replacement }, open.policy, now),
        );
      }),
    );
}

function rewrapCommand(io: Io): Command {
  return addChangeFlags(
    new Command("rewrap").description(
      "Encrypt all private keys again, under the first wrapping key. Verifiers do not notice.",
    ),
  )
    .addHelpText(
      "after",
      `
To change the wrapping key:
  1. Add a new one as the second line of --wrapping-key-file, and restart every jwksd serve.
  2. Put the new one first, and restart again.
  3. Run jwksd keys rewrap.
  4. Remove the old one.

Example:
  $ jwksd keys rewrap --wrapping-key-file /etc/jwksd/wrapping.key`,
    )
    .action((flags: ChangeFlags) =>
      withKeys(io, flags, {}, (open) =>
        changeKeys(open, { flags, breaks: false }, (records, now) => rewrap(records, open.wrapping, now)),
      ),
    );
}

async function rewrap(records: readonly KeyRecord[], wrapping: Wrapping, now: number): Promise<Change> {
  let change: Change = { records, events: [] };
  for (const record of records) {
    const { kid } = record;
    const wrapped = jweOf(record);
    if (wrapped === undefined || wrapping.isCurrent(wrapped)) continue;
    const jwe = await wrapping.wrap(kid, await wrapping.unwrap(kid, wrapped));
    const reason = "an operator moved it under the first wrapping key";
    change = replace(change, { ...record, privateHalf: { jwe } }, now, "rewrapped", reason);
  }
  return change;
}
