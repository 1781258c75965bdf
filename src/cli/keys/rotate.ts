import { type KeyUse, announcedKey } from "../../rotation/rules/records.ts";
import { Command } from "../command.ts";
import type { Io } from "../io.ts";
import { type ChangeFlags, addChangeFlags, byCommand, changeKeys, newKeySettings } from "./change-keys.ts";
import { addNewKeyFlags } from "./generate-keys.ts";
import { withKeys } from "./open-keys.ts";

type RotateFlags = ChangeFlags & { readonly use: KeyUse; readonly alg?: string; readonly now?: true };

export function commandOf(io: Io): Command {
  const command = new Command("rotate");
  addNewKeyFlags(command).option("--now", "activate the next key immediately, before caches have it; requires --yes");
  return addChangeFlags(command, { yes: true }, ...newKeySettings)
    .notes(`
A rotation without --now breaks nothing: the new key signs once every cache has
it. With --now, it signs immediately. Verifiers that do not refetch on an
unknown kid then refuse its tokens for hours; --dry-run prints which ones, and
how long. The old key stays published until its last token expires; jwksd keys
revoke removes it immediately.

The new signing key is generated in the store or as --signer-type says. If serve
has --signer-type, give it here, too.

A jwksd serve on the same store catches up within a second. Exit code 3: the
rotation has begun, but not every replica caught up within --wait; the message
names each one that may still use the previous keys, and how long.

Examples:
  $ jwksd rotate                          announce the next signing key
  $ jwksd rotate --use enc --alg ECDH-ES  announce the next encryption key
  $ jwksd rotate --now --dry-run          show the effects of a rotation now
  $ jwksd rotate --now --yes              activate the next key immediately`)
    .action((flags: RotateFlags) =>
      withKeys(io, flags, {}, (open) => {
        const { use, alg, now = false } = flags;
        const isAnnounced = announcedKey(open.document.records, use) !== undefined;
        // An announced key is the next key, so no other key is generated.
        const newKey = now && isAnnounced ? undefined : { use, alg };
        const decide = byCommand((key) => ({ type: "rotate", use, key, now }));
        return changeKeys(open, { flags, breaks: now, newKey }, decide);
      }),
    );
}
