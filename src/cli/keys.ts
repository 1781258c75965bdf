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
    .addCommand(stepCommand(io, "retire", "Retire the active key; the announced one takes its place."))
    .addCommand(stepCommand(io, "remove", "Take a retiring key away, or one that is announced, for good."))
    .addCommand(revokeCommand(io))
    .addCommand(destroyCommand(io))
    .addCommand(importCommand(io))
    .addCommand(exportCommand(io))
    .addCommand(rewrapCommand(io))
    .addHelpText(
      "after",
      `
Every step that is planned happens by itself; these commands are for everything else. Each takes --dry-run, which prints the
exact change and what it means for verifiers, and --json. A jwksd serve on the same store follows within a second.

Examples:
  $ jwksd keys                            which keys there are, and what happens to them next
  $ jwksd keys revoke KID --dry-run       until when caches may still trust a key that has leaked
  $ jwksd keys import key.pem             go on with a key from elsewhere
  $ jwksd keys help import                the flags of one of them`,
    );
}

function listCommand(io: Io): Command {
  const command = new Command("list").description("List the managed keys (what jwksd keys does by itself).");
  return addListFlags(command)
    .addHelpText(
      "after",
      `
Below a key that is in an HSM or key service stands its URI; --json has it as uri. The next step of a key follows from the policy, so
use the environment, --config or flags of jwksd serve; jwksd help serve lists them.`,
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
    "Publish a new key, which is used when every cache knows it; the first key of its use is used at once.",
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
With --destroy-external a key in an HSM or key service is destroyed there, too, for good, and also one that was imported, which
jwksd has not made. --dry-run names it.
`;

function stepCommand(io: Io, type: "activate" | "retire" | "remove", description: string): Command {
  return addChangeFlags(takesKid(new Command(type).description(description)), {
    force: true,
  })
    .addHelpText(
      "after",
      `
A step that would break verifications is refused, and the refusal says from when on it is not. --force --yes does it now.
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
    "Take a key away at once and for good, because its private half may be known to others.",
  );
  return addChangeFlags(takesKid(command), { yes: true })
    .addHelpText(
      "after",
      `
In the place of the active key comes the announced one, else a new one. Caches may trust the key for as long as they may keep
the set that they have: up to 7,200 seconds, or 300 if the rotation mode has been on for 7,200; what is printed says which.
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
    new Command("rewrap").description("Move all private keys under the first wrapping key; nobody else is affected."),
  )
    .addHelpText(
      "after",
      `
To change the wrapping key: add a new one as the second line of --wrapping-key-file and restart every jwksd serve; put it first
and restart again; rewrap; then take the old one out.

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
