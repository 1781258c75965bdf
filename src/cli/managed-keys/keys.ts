import { StoreError } from "../../base/errors.ts";
import { timeText } from "../../base/format.ts";
import type { CustodyOptions } from "../../rotation/custody/custody.ts";
import type { Changed } from "../../rotation/manager/store-access.ts";
import type { NewKey } from "../../rotation/rules/commands.ts";
import { type KeyUse, activeKey, announcedKey, recordOf } from "../../rotation/rules/key-records.ts";
import { Command } from "../command.ts";
import { errorText } from "../error-text.ts";
import { exportCommand } from "../files/export-keys.ts";
import { type Io, printNotice } from "../io.ts";
import { type ChangeFlags, addChangeFlags, byCommand, changeKeys, newKeySettings } from "./change-keys.ts";
import { destroyCommand } from "./destroy-external.ts";
import { addNewKeyFlags } from "./generate-keys.ts";
import { importCommand } from "./import-keys.ts";
import { listCommand } from "./list-keys.ts";
import { takesKid, withKeys } from "./open-keys.ts";
import { resolveKid } from "./resolve-kid.ts";
import { rewrapCommand } from "./rewrap.ts";

type RevokeFlags = ChangeFlags & { readonly lostWrappingKey?: true };

export function commandOf(io: Io): Command {
  return new Command("keys")
    .addCommand(listCommand(io), { isDefault: true })
    .addCommand(announceCommand(io))
    .addCommand(
      stepCommand(io, "activate", "Activate an announced key now, and retire the key that is currently active."),
    )
    .addCommand(stepCommand(io, "retire", "Retire the active key; the announced key replaces it."))
    .addCommand(stepCommand(io, "remove", "Remove a retiring or announced key permanently."))
    .addCommand(revokeCommand(io))
    .addCommand(destroyCommand(io))
    .addCommand(importCommand(io))
    .addCommand(exportCommand(io))
    .addCommand(rewrapCommand(io)).notes(`
To see the options for listing keys, such as --data and --all, run jwksd help
keys list.

Planned steps are taken automatically by jwksd serve; these commands are for
everything else. With --dry-run, a command that changes keys only prints the
exact change and its effects on verifiers. All commands have --json. A jwksd
serve process on the same store picks up a change within a second. Exit code 3:
the change was made, but not every replica caught up within --wait (see jwksd
replicas).

Examples:
  $ jwksd keys                        list the keys and the next step of each
  $ jwksd keys revoke KID --dry-run   show how long caches trust a leaked key
  $ jwksd keys import key.pem         import a key from elsewhere
  $ jwksd help keys import            explain one command`);
}

function announceCommand(io: Io): Command {
  const command = new Command("announce").description(
    "Publish a new key, which becomes active once every cache has it. A store's first signing key and first encryption key become active immediately.",
  );
  return addChangeFlags(addNewKeyFlags(command), {}, ...newKeySettings)
    .notes(`
Examples:
  $ jwksd keys announce               the next signing key, as jwksd rotate does
  $ jwksd keys announce --use enc     the first encryption key, or the next one`)
    .action((flags: ChangeFlags & { readonly use: KeyUse; readonly alg?: string }) =>
      withKeys(io, flags, {}, (open) => {
        const newKey = { use: flags.use, alg: flags.alg };
        // There is a key, because changeKeys generates one if newKey is given.
        const decide = byCommand((key) => ({ type: "announce", key: key as NewKey }));
        return changeKeys(open, { flags, breaks: false, newKey }, decide);
      }),
    );
}

const destroyHelp = `
With --destroy-external, a key in an HSM or key service is also destroyed there
permanently, even an imported key. --dry-run names the key.
`;

function stepCommand(io: Io, type: "activate" | "retire" | "remove", description: string): Command {
  const command = takesKid(new Command(type).description(description));
  const destroys = type === "remove";
  return addChangeFlags(command, { force: true }, ...(destroys ? (["destroyExternal"] as const) : []))
    .notes(`
If a step would make valid tokens fail, the command refuses to take it and says
when the step will be safe. To take the step now, add --force --yes.
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
    "Immediately and permanently remove a key whose private key may have leaked.",
  );
  const help =
    "acknowledge that the store's wrapping key is lost; new keys are encrypted with the wrapping key that you pass";
  return addChangeFlags(takesKid(command.option("--lost-wrapping-key", help)), { yes: true }, ...newKeySettings)
    .notes(`
If the key was active, the announced key replaces it or, if no key is announced,
a new one. A replica that cannot read the store keeps using the revoked key
until the replica is stale. Caches may trust the key for 7,200 seconds after
that, or for 300 seconds if rotation mode has been on for long enough. --dry-run
prints how long.
${destroyHelp}
Examples:
  $ jwksd keys revoke KID --dry-run
  $ jwksd keys revoke KID --yes`)
    .action((given: string, flags: RevokeFlags) => {
      const isLost = flags.lostWrappingKey === true;
      return withKeys(io, flags, { accepts: acceptLostKey(io, flags) }, (open) => {
        const { records } = open.document;
        const kid = resolveKid(records, given);
        const { use } = recordOf(records, kid);
        const isNeeded = activeKey(records, use)?.kid === kid && announcedKey(records, use) === undefined;
        const newKey = isNeeded ? { use } : undefined;
        if (isLost)
          printNotice(
            io,
            "a jwksd serve process that does not have this command's wrapping keys cannot read the change; restart any such process with these wrapping keys",
          );
        const decide = byCommand((replacement) => ({ type: "revoke", kid, replacement }));
        return changeKeys(open, { flags, breaks: true, newKey, remarks: remarkUnlisted }, decide);
      });
    });
}

/** Returns a remark about processes that `jwksd replicas` never lists. */
function remarkUnlisted({ seen: { now, document } }: Changed): string[] {
  const until = timeText(now + document.policy.maxStaleSeconds * 1000);
  return [
    `A process that has not read this change may still use the key until ${until}. On-demand processes and processes with read-only access to the store do not appear in the output of "jwksd replicas".`,
  ];
}

/** Accepts a store that cannot be verified, if the operator has confirmed that its wrapping key is lost. */
function acceptLostKey(io: Io, flags: RevokeFlags): CustodyOptions["accepts"] {
  return (problem) => {
    if (problem.code !== "ERR_WRAPPING_KEY_MISSING") return false;
    if (flags.lostWrappingKey === true) {
      printNotice(
        io,
        `the store is not verified: ${errorText(problem)}. List its keys with jwksd keys, then revoke every one of them`,
      );
      return true;
    }
    throw new StoreError(problem.code, `nothing was changed: ${problem.message}`, { cause: problem });
  };
}
