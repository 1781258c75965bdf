import { StoreError } from "../../base/errors.ts";
import { timeText } from "../../base/format.ts";
import type { CustodyOptions } from "../../rotation/custody/custody.ts";
import type { Changed } from "../../rotation/manager/store-access.ts";
import type { NewKey } from "../../rotation/rules/commands.ts";
import { type KeyUse, activeKey, announcedKey, recordOf } from "../../rotation/rules/records.ts";
import { Command } from "../command.ts";
import { errorText } from "../error-text.ts";
import { exportCommand } from "../files/export-keys.ts";
import { type Io, tell } from "../io.ts";
import { type ChangeFlags, addChangeFlags, byCommand, changeKeys, newKeySettings } from "./change-keys.ts";
import { destroyCommand } from "./destroy.ts";
import { importCommand } from "./import-keys.ts";
import { resolveKid } from "./kid.ts";
import { listCommand } from "./list-keys.ts";
import { addNewKeyFlags } from "./make-keys.ts";
import { takesKid, withKeys } from "./open-keys.ts";
import { rewrapCommand } from "./rewrap.ts";

type RevokeFlags = ChangeFlags & { readonly lostWrappingKey?: true };

export function commandOf(io: Io): Command {
  return new Command("keys")
    .addCommand(listCommand(io), { isDefault: true })
    .addCommand(announceCommand(io))
    .addCommand(stepCommand(io, "activate", "Let an announced key sign now; the active key retires."))
    .addCommand(stepCommand(io, "retire", "Retire the active key; the announced key takes its place."))
    .addCommand(stepCommand(io, "remove", "Remove a retiring or announced key, for good."))
    .addCommand(revokeCommand(io))
    .addCommand(destroyCommand(io))
    .addCommand(importCommand(io))
    .addCommand(exportCommand(io))
    .addCommand(rewrapCommand(io)).notes(`
The options of the list, such as --data and --all: jwksd help keys list.

jwksd serve takes each planned step by itself; these commands are for everything
else. Commands that change keys have --dry-run, which prints the exact change
and what it means for verifiers. All commands have --json. A jwksd serve on the
same store takes up a change within a second. Exit code 3: the change is done,
and not every replica has followed within --wait (jwksd replicas).

Examples:
  $ jwksd keys                        list the keys, and the next step of each
  $ jwksd keys revoke KID --dry-run   until when caches may trust a leaked key
  $ jwksd keys import key.pem         take over a key from elsewhere
  $ jwksd help keys import            the options of one command`);
}

function announceCommand(io: Io): Command {
  const command = new Command("announce").description(
    "Publish a new key. It becomes active when every cache knows it; the first signing or encryption key, at once.",
  );
  return addChangeFlags(addNewKeyFlags(command), {}, ...newKeySettings)
    .notes(`
Examples:
  $ jwksd keys announce               the next signing key, as jwksd rotate does
  $ jwksd keys announce --use enc     the first encryption key, or the next one`)
    .action((flags: ChangeFlags & { readonly use: KeyUse; readonly alg?: string }) =>
      withKeys(io, flags, {}, (open) => {
        const newKey = { use: flags.use, alg: flags.alg };
        // changeKeys generates a key, because newKey is given.
        const decide = byCommand((key) => ({ type: "announce", key: key as NewKey }));
        return changeKeys(open, { flags, breaks: false, newKey }, decide);
      }),
    );
}

const destroyHelp = `
With --destroy-external, a key in an HSM or key service is also destroyed there,
for good, even an imported key that jwksd did not make. --dry-run names the key.
`;

function stepCommand(io: Io, type: "activate" | "retire" | "remove", description: string): Command {
  const command = takesKid(new Command(type).description(description));
  const destroys = type === "remove";
  return addChangeFlags(command, { force: true }, ...(destroys ? (["destroyExternal"] as const) : []))
    .notes(`
A step that would break verifications is refused; the message says when the step
will be safe. --force --yes takes it now.
${destroys ? destroyHelp : ""}
Examples:
  $ jwksd keys ${type} KID --dry-run
  $ jwksd keys ${type} KID
  $ jwksd keys ${type} KID --force --yes`)
    .action((given: string, flags: ChangeFlags) =>
      withKeys(io, flags, {}, (open) => {
        const kid = resolveKid(open.document.records, given);
        const force = flags.force === true;
        return changeKeys(
          open,
          { flags, breaks: force },
          byCommand(() => ({ type, kid, force })),
        );
      }),
    );
}

function revokeCommand(io: Io): Command {
  const command = new Command("revoke").description(
    "Remove a key at once and for good, because others may know its private half.",
  );
  const help = "the wrapping key of the store is lost: new keys are wrapped under the one that is given";
  return addChangeFlags(takesKid(command.option("--lost-wrapping-key", help)), { yes: true }, ...newKeySettings)
    .notes(`
If the key was active, the announced key takes its place, else a new key. A
replica that cannot read the store goes on with the revoked key until it is
stale. Caches may trust the key for 7,200 seconds after that, or for 300 if a
rotation has been on for long enough. --dry-run prints until when.
${destroyHelp}
Examples:
  $ jwksd keys revoke KID --dry-run
  $ jwksd keys revoke KID --yes`)
    .action((given: string, flags: RevokeFlags) => {
      const isLost = flags.lostWrappingKey === true;
      return withKeys(io, flags, { accepts: lost(io, flags) }, (open) => {
        const { records } = open.document;
        const kid = resolveKid(records, given);
        const { use } = recordOf(records, kid);
        const isNeeded = activeKey(records, use)?.kid === kid && announcedKey(records, use) === undefined;
        const newKey = isNeeded ? { use } : undefined;
        if (isLost) tell(io, "a jwksd serve that has other wrapping keys than this command cannot follow");
        const decide = byCommand((replacement) => ({ type: "revoke", kid, replacement }));
        return changeKeys(open, { flags, breaks: true, newKey, remarks: unlisted }, decide);
      });
    });
}

/** What no list of processes shows. */
function unlisted({ seen: { now, document } }: Changed): string[] {
  const until = timeText(now + document.policy.maxStaleSeconds * 1000);
  return [
    `A process that has not read of this may use the key until ${until}. jwksd replicas lists no process on demand, and none that may only read the store.`,
  ];
}

/** Where the wrapping key is lost, nobody can verify what is in the store. */
function lost(io: Io, flags: RevokeFlags): CustodyOptions["accepts"] {
  return (problem) => {
    if (problem.code !== "ERR_WRAPPING_KEY_MISSING") return false;
    if (flags.lostWrappingKey === true) {
      tell(io, `not verified: ${errorText(problem)}; revoke every key that jwksd keys shows`);
      return true;
    }
    throw new StoreError(problem.code, `nothing was changed: ${problem.message}`, { cause: problem });
  };
}
