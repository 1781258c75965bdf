import { type KeyUse, announcedKey } from "../../rotation/rules/records.ts";
import { Command } from "../command.ts";
import type { Io } from "../io.ts";
import { type ChangeFlags, addChangeFlags, byCommand, changeKeys, newKeySettings } from "./change-keys.ts";
import { addNewKeyFlags } from "./make-keys.ts";
import { withKeys } from "./open-keys.ts";

type RotateFlags = ChangeFlags & { readonly use: KeyUse; readonly alg?: string; readonly now?: true };

export function commandOf(io: Io): Command {
  const command = new Command("rotate");
  addNewKeyFlags(command).option("--now", "let the next key sign at once, before caches know it; needs --yes");
  return addChangeFlags(command, { yes: true }, ...newKeySettings)
    .notes(`
A rotation without --now breaks nothing: the new key signs when every cache
knows it. With --now it signs at once. Verifiers that do not fetch again on an
unknown kid then refuse its tokens for hours; --dry-run prints which, and until
when. The old key stays published for as long as its tokens live; jwksd keys
revoke removes it at once.

The new signing key is made in the store, or where --signer-type says. If serve
has --signer-type, give it here, too.

A jwksd serve on the same store follows within a second. Exit code 3: the
rotation has begun, and not every replica has followed within --wait; the
message names each that may still use the previous keys, and says until when.

Examples:
  $ jwksd rotate                          announce the next signing key
  $ jwksd rotate --use enc --alg ECDH-ES  announce the next encryption key
  $ jwksd rotate --now --dry-run          what an emergency rotation would break
  $ jwksd rotate --now --yes              the next key signs at once`)
    .action((flags: RotateFlags) =>
      withKeys(io, flags, {}, (open) => {
        const { use, alg, now = false } = flags;
        const isAnnounced = announcedKey(open.document.records, use) !== undefined;
        // An announced key is the next one, so no other is made.
        const newKey = now && isAnnounced ? undefined : { use, alg };
        const decide = byCommand((key) => ({ type: "rotate", use, key, now }));
        return changeKeys(open, { flags, breaks: now, newKey }, decide);
      }),
    );
}
