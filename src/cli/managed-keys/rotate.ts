import { invalidOption } from "../../base/errors.ts";
import { type KeyUse, announcedKey } from "../../rotation/rules/key-records.ts";
import { Command } from "../command.ts";
import type { Io } from "../io.ts";
import { type ChangeFlags, addChangeFlags, byCommand, changeKeys, newKeySettings } from "./change-keys.ts";
import { addNewKeyFlags } from "./generate-keys.ts";
import { type CommandKeys, withKeys } from "./open-keys.ts";
import { resolveKid } from "./resolve-kid.ts";

interface RotateFlags extends ChangeFlags {
  readonly use: KeyUse;
  readonly alg?: string;
  readonly now?: true;
  /** A kid, or `true` for the key that signed most recently. */
  readonly back?: string | true;
  readonly withdraw?: true;
}

export function commandOf(io: Io): Command {
  const command = new Command("rotate");
  addNewKeyFlags(command)
    .option("--now", "activate the next key immediately, before caches have it; requires --yes")
    .option("--back [kid]", "roll back: sign again with this retiring key (default: the key that signed most recently)")
    .option("--withdraw", "with --back: remove the announced key in the same step");
  return addChangeFlags(command, { yes: true }, ...newKeySettings)
    .notes(`
A rotation without --now breaks nothing: the new key starts signing once every
cache has it. With --now, it starts signing immediately. Verifiers that do not
refetch on an unknown kid then reject its tokens for hours; --dry-run prints
which verifiers, and for how long. The old key stays published until its last
token expires; to remove it immediately, run jwksd keys revoke.

If the new key causes problems, --back makes the earlier key sign again until
that key is removed. Every cache still has the earlier key, so nothing breaks.
jwksd tests the key first. The key's active period is measured from the day on
which it first signed, so the next key may be due soon, or even immediately; the
output says when. To keep the earlier key for longer, first run jwksd policy
--rotate-every-days.

The new signing key is generated in the store, or where --signer-type says. If
jwksd serve has --signer-type, pass it here, too.

A jwksd serve process on the same store catches up within a second. Exit code 3:
the rotation has begun, but not every replica caught up within --wait; the
message says which replicas may still use the previous keys, and for how long.

Examples:
  $ jwksd rotate                          announce the next signing key
  $ jwksd rotate --use enc --alg ECDH-ES  announce the next encryption key
  $ jwksd rotate --now --dry-run          show the effects of a rotation now
  $ jwksd rotate --now --yes              activate the next key immediately
  $ jwksd rotate --back --dry-run         show the effects of a rollback`)
    .action((flags: RotateFlags) =>
      withKeys(io, flags, {}, (open) => {
        if (flags.back !== undefined) return rollBack(open, flags, flags.back);
        if (flags.withdraw === true) throw invalidOption("--withdraw requires --back");
        const { use, alg, now = false } = flags;
        const isAnnounced = announcedKey(open.document.records, use) !== undefined;
        // If a key is already announced, it becomes the next key, so no new key is generated.
        const newKey = now && isAnnounced ? undefined : { use, alg };
        const decide = byCommand((key) => ({ type: "rotate", use, key, now }));
        return changeKeys(open, { flags, breaks: now, newKey }, decide);
      }),
    );
}

function rollBack(open: CommandKeys, flags: RotateFlags, back: string | true): Promise<void> {
  const { use, alg, now = false, withdraw = false } = flags;
  if (use === "enc" || alg !== undefined)
    throw invalidOption("--back is only for signing keys; omit --use enc and --alg");
  const kid = back === true ? undefined : resolveKid(open.document.records, back);
  const decide = byCommand(() => ({ type: "rollBack", kid, withdraw, now }));
  return changeKeys(open, { flags, breaks: now }, decide);
}
