import { Command, Option } from "commander";
import { ConfigError } from "../errors.ts";
import { applyCommand } from "../rotation/commands.ts";
import { defaultAlg, makeLocalKey } from "../rotation/make-key.ts";
import { activeKey, announcedKey } from "../rotation/records.ts";
import type { NewKey } from "../rotation/commands.ts";
import type { KeyUse } from "../store/store.ts";
import { type ChangeFlags, addChangeFlags, changeKeys } from "./change-keys.ts";
import { type OpenKeys, recordsOf, useOption, withKeys } from "./managed-keys.ts";

type NewKeyFlags = ChangeFlags & { readonly use: KeyUse; readonly alg?: string };

const encryptionAlgs = [
  "RSA-OAEP-256",
  "RSA-OAEP-384",
  "RSA-OAEP-512",
  "RSA-OAEP",
  "ECDH-ES",
  "ECDH-ES+A128KW",
  "ECDH-ES+A256KW",
];

/** What a dry run cannot show. */
export const dryKeyNote = "The key was made for the dry run only; the real one has another kid.";

/** Flags of commands that make a key. */
export function addNewKeyFlags(command: Command): Command {
  return command
    .addOption(useOption().default("sig"))
    .addOption(
      new Option(
        "--alg <alg>",
        "of the new encryption key; signing keys are ES256 (default: that of the active one)",
      ).choices(["ES256", ...encryptionAlgs]),
    );
}

export function rotateCommand(): Command {
  const command = new Command("rotate").description(
    "Begin a rotation: announce the next key now, instead of when it is due.",
  );
  addNewKeyFlags(command).option("--now", "let the next key sign at once, before caches know it; needs --yes");
  return addChangeFlags(command, { yes: true })
    .addHelpText(
      "after",
      `
Nobody is affected by a rotation that is announced: the new key signs when every cache knows it. With --now it signs at
once, and verifiers that do not ask again on an unknown kid refuse its tokens for hours; what you see with --dry-run is
which, and until when. The old key stays published for as long as its tokens live; to take it away, revoke it.

A jwksd serve on the same store follows within a second.

Examples:
  $ jwksd rotate                          announce the next signing key
  $ jwksd rotate --use enc --alg ECDH-ES  announce the next encryption key
  $ jwksd rotate --now --dry-run          what an emergency rotation would break
  $ jwksd rotate --now --yes              the next key signs at once`,
    )
    .action(async (flags: NewKeyFlags & { readonly now?: true }) => rotate(flags));
}

async function rotate(flags: NewKeyFlags & { readonly now?: true }): Promise<void> {
  const { use } = flags;
  const immediately = flags.now === true;
  await withKeys(flags, {}, async (open) => {
    const isAnnounced = announcedKey(await recordsOf(open.store), use) !== undefined;
    // Where one is announced, that one is next.
    const key = immediately && isAnnounced ? undefined : await newKey(open, flags);
    const options = { flags, breaks: immediately, note: key && dryKeyNote };
    await changeKeys(open, options, (records, now) =>
      applyCommand(records, { type: "rotate", use, key, now: immediately }, open.policy, now),
    );
  });
}

/** A key with the alg that was asked for, else with that of the active one. */
export async function newKey({ store, wrapping }: OpenKeys, { use, alg }: NewKeyFlags): Promise<NewKey> {
  if (alg !== undefined && (alg === "ES256") !== (use === "sig")) {
    throw new ConfigError("ERR_OPTION_INVALID", `--alg ${alg} is not for keys of use "${use}"`);
  }
  const active = activeKey(await recordsOf(store), use);
  return makeLocalKey(use, alg ?? active?.alg ?? defaultAlg[use], wrapping);
}
