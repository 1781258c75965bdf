import { Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { StateError, invalidOption } from "../../base/errors.ts";
import { kidText } from "../../base/format.ts";
import { atOf } from "../../rotation/manager/clocks.ts";
import { wrapKey } from "../../rotation/manager/private-keys.ts";
import type { Changed } from "../../rotation/manager/store-access.ts";
import type { Change } from "../../rotation/rules/advance.ts";
import { type Command as KeyCommand, type NewKey, applyCommand } from "../../rotation/rules/commands.ts";
import { policyNames } from "../../rotation/rules/policy.ts";
import { type KeyRecord, type KeyUse, activeKey, keyUses } from "../../rotation/rules/records.ts";
import { looksLikeSecret } from "../../service/config/setting-definitions.ts";
import { signersOf } from "../../service/config/signers.ts";
import { Command } from "../command.ts";
import { readImport } from "../files/read-import.ts";
import type { Io } from "../io.ts";
import { type ChangeFlags, addChangeFlags, changeKeys } from "./change-keys.ts";
import { openExternal } from "./make-keys.ts";
import { managedSettings, useOption, withKeys } from "./open-keys.ts";

type ImportFlags = ChangeFlags & {
  readonly signer?: string;
  readonly state?: "announced" | "active" | "retiring";
  readonly use?: KeyUse;
  readonly kid?: string;
};

export function importCommand(io: Io): Command {
  const command = new Command("import")
    .description("Import private keys of another provider: PEM, a private JWK, or a private JWK Set.")
    .argument("[file]", "file of the private key or keys; import does not change it")
    .option("--signer <uri>", "instead of a file: key URI of a signing key in an HSM or key service")
    .addOption(
      new Option(
        "--state <state>",
        "state of a single key (default: active if it is the first key of its use, else announced)",
      ).choices(["announced", "active", "retiring"]),
    )
    .addOption(useOption())
    .option("--kid <kid>", "of a set: import only this key; of a PEM file or --signer: the published kid of the key");
  return addChangeFlags(command, { force: true }, ...policyNames)
    .notes(`
Without --kid, all keys of a set are imported, into a store without keys: the
first key of each use becomes active, the others retiring. The kid is that of
the JWK, else --kid, else the RFC 7638 thumbprint of the key. Signing keys must
be EC on P-256 (ES256). Keys of other types are encryption keys: use or alg of
the JWK must say so; a PEM file needs --use enc. Into a store without keys,
import also writes the rotation policy.

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
    throw invalidOption("import takes either a file or --signer URI");
  if (file !== undefined && looksLikeSecret(file)) {
    throw invalidOption("import takes the path of a file, but got something that looks like a key");
  }
  if (signer !== undefined && flags.use === "enc") {
    throw invalidOption("--use enc and --signer exclude each other: keys in HSMs and key services are signing keys");
  }
  const { isSet, keys } = file === undefined ? { isSet: false, keys: [] } : await readImport(file, flags);
  if (isSet && flags.state !== undefined) {
    throw invalidOption("--state is for a single key; choose one of the set with --kid");
  }
  // Before a store is made, so that a key that is refused leaves nothing behind.
  const external = signer && (await openExternal(await signersOf(await managedSettings(io, flags)), signer, flags.kid));
  await withKeys(io, flags, { create: true, dryRun: flags.dryRun === true }, async (open) => {
    const { records: before } = open.document;
    if (isSet && before.length > 0) {
      throw new StateError(
        "ERR_TRANSITION",
        "all keys of a set can be imported only into a store without keys; choose one key with --kid",
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
      let change: Change = { records: seen.document.records, events: [] };
      for (const command of commands) {
        const next = applyCommand(change.records, command, atOf(seen, systemClock));
        change = { records: next.records, events: [...change.events, ...next.events] };
      }
      return change;
    });
  });
}

/** What an import takes for granted about signing keys, which only their former provider knows. */
function remarksOf(commands: readonly KeyCommand[], { before, document }: Changed): string[] {
  const imports = commands.filter((command) => command.type === "import").filter(({ key }) => key.use === "sig");
  if (imports.length === 0) return [];
  const { maxTokenLifetimeSeconds } = document.policy;
  const active = activeKey(before, "sig");
  const stays = active !== undefined && imports.some(({ state }) => state === "announced");
  return [
    `jwksd assumes that no token of an imported key lives longer than ${maxTokenLifetimeSeconds} s; ${before.length === 0 ? "--max-token-lifetime-seconds says otherwise" : "jwksd policy changes that"}.`,
    ...(stays
      ? [
          `Signing key "${kidText(active.kid)}" stays active and signs until then. If verifiers know the imported key already, from another provider of this issuer, add --state active --force --yes: then it signs at once.`,
        ]
      : []),
  ];
}

/** Import commands: signing keys first, because every store needs one. The first key of each use becomes active. */
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
        const place = index === 0 ? "active" : "retiring";
        return { type: "import", key, state: flags.state ?? (hasActive ? "announced" : place), force: flags.force };
      });
  });
}
