import { Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { RotationError, invalidOption } from "../../base/errors.ts";
import { kidText } from "../../base/format.ts";
import { wrapKey } from "../../rotation/manager/private-keys.ts";
import type { Changed } from "../../rotation/manager/store-access.ts";
import { atOf } from "../../rotation/manager/store-clock.ts";
import type { KeyChange } from "../../rotation/rules/advance.ts";
import { type Command as KeyCommand, type NewKey, applyCommand } from "../../rotation/rules/commands.ts";
import { type KeyRecord, type KeyUse, activeKey, keyUses } from "../../rotation/rules/key-records.ts";
import { policyNames } from "../../rotation/rules/policy.ts";
import { looksLikeSecret } from "../../service/config/setting-definitions.ts";
import { signersOf } from "../../service/config/signers.ts";
import { Command } from "../command.ts";
import { readImport } from "../files/read-import.ts";
import type { Io } from "../io.ts";
import { type ChangeFlags, addChangeFlags, changeKeys } from "./change-keys.ts";
import { openExternal } from "./generate-keys.ts";
import { managedSettings, useOption, withKeys } from "./open-keys.ts";

type ImportFlags = ChangeFlags & {
  readonly signer?: string;
  readonly state?: "announced" | "active" | "retiring";
  readonly use?: KeyUse;
  readonly kid?: string;
};

export function importCommand(io: Io): Command {
  const command = new Command("import")
    .description("Import another provider's private keys: PEM, a private JWK, or a private JWK Set.")
    .argument("[file]", "file with one or more private keys; the file is not changed")
    .option("--signer <uri>", "instead of a file: key URI of a signing key in an HSM or key service")
    .addOption(
      new Option(
        "--state <state>",
        "state of the key, if only one key is imported (default: active if it is the first key with that use, otherwise announced)",
      ).choices(["announced", "active", "retiring"]),
    )
    .addOption(useOption())
    .option(
      "--kid <kid>",
      "for a JWK Set, the kid of the one key to import; for a PEM file or --signer, the kid to publish",
    );
  return addChangeFlags(command, { force: true }, ...policyNames)
    .notes(`
Without --kid, all keys in a set are imported, and the store must be empty: the
first key for each use becomes active, and the others become retiring. The kid
is taken from the JWK. If the JWK does not have one, it is the value of --kid
or, without --kid, the key's RFC 7638 thumbprint. Signing keys must be EC keys
on P-256 (ES256). Keys of other types are encryption keys: the JWK's use or alg
must say so or, for a PEM file, add --use enc. If the store is empty, the
command also writes the rotation policy.

Examples:
  $ jwksd keys import key.pem --kid 2026-11      tokens with this kid stay valid
  $ jwksd keys import jwks.json                  all keys of a private JWK Set
  $ jwksd keys import jwks.json --kid old --state retiring
  $ jwksd keys import --signer aws-kms:arn:aws:kms:…     see docs/signers.md`)
    .action((file: string | undefined, flags: ImportFlags) => importKeys(io, file, flags));
}

async function importKeys(io: Io, file: string | undefined, flags: ImportFlags): Promise<void> {
  const { signer } = flags;
  if ((file === undefined) === (signer === undefined))
    throw invalidOption("either a file or --signer URI is required; pass exactly one of them");
  if (file !== undefined && looksLikeSecret(file)) {
    throw invalidOption("this looks like a key, not a file path; write the key to a file and pass its path");
  }
  if (signer !== undefined && flags.use === "enc") {
    throw invalidOption(
      "--use enc and --signer cannot be combined, because keys in HSMs and key services are signing keys",
    );
  }
  const { isSet, keys } = file === undefined ? { isSet: false, keys: [] } : await readImport(file, flags);
  if (isSet && flags.state !== undefined) {
    throw invalidOption("--state applies to a single key; select one of the set's keys with --kid");
  }
  // Done before a store is created, so that a rejected key leaves nothing behind.
  const external = signer && (await openExternal(await signersOf(await managedSettings(io, flags)), signer, flags.kid));
  await withKeys(io, flags, { create: true, dryRun: flags.dryRun === true }, async (open) => {
    const { records: before } = open.document;
    if (isSet && before.length > 0) {
      throw new RotationError(
        "ERR_TRANSITION",
        "a whole set can only be imported into an empty store; to import one key, add --kid",
      );
    }
    const found = external
      ? [external]
      : await Promise.all(
          keys.map(({ kid, use, alg, privateJwk }) => wrapKey(use, alg, privateJwk, open.custody, kid)),
        );
    const force = flags.force === true;
    const commands = importCommands(found, before, flags);
    const remarks = (change: Changed): string[] => remarksOf(commands, change);
    await changeKeys(open, { flags, breaks: force, remarks }, (seen) => {
      let change: KeyChange = { records: seen.document.records, events: [] };
      for (const command of commands) {
        const next = applyCommand(change.records, command, atOf(seen, systemClock));
        change = { records: next.records, events: [...change.events, ...next.events] };
      }
      return change;
    });
  });
}

/**
 * Returns an import's assumptions about signing keys. Only the provider that previously used the keys can confirm these
 * assumptions.
 */
function remarksOf(commands: readonly KeyCommand[], { before, document }: Changed): string[] {
  const imports = commands.filter((command) => command.type === "import").filter(({ key }) => key.use === "sig");
  if (imports.length === 0) return [];
  const { maxTokenLifetimeSeconds } = document.policy;
  const active = activeKey(before, "sig");
  const stays = active !== undefined && imports.some(({ state }) => state === "announced");
  return [
    `jwksd assumes that no token signed with an imported key has a lifetime of more than ${maxTokenLifetimeSeconds} s. If that is wrong, raise the maximum with ${before.length === 0 ? "" : "jwksd policy "}--max-token-lifetime-seconds.`,
    ...(stays
      ? [
          `Signing key "${kidText(active.kid)}" stays active and signs until the imported key becomes active. If verifiers already know the imported key from another provider for this issuer, add --state active --force --yes; the key then starts signing immediately.`,
        ]
      : []),
  ];
}

/**
 * Returns the import commands. Signing keys come first, because every store needs one. The first key for each use
 * becomes active.
 */
export function importCommands(
  found: readonly NewKey[],
  before: readonly KeyRecord[],
  flags: ImportFlags,
): KeyCommand[] {
  return keyUses.flatMap((use) => {
    const hasActive = activeKey(before, use) !== undefined;
    return found
      .filter((key) => key.use === use)
      .map((key, index): KeyCommand => {
        const initialState = index === 0 ? "active" : "retiring";
        return {
          type: "import",
          key,
          state: flags.state ?? (hasActive ? "announced" : initialState),
          force: flags.force,
        };
      });
  });
}
