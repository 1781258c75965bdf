import { Command, Option } from "commander";
import { ConfigError, StateError } from "../errors.ts";
import { makeDocument } from "../keyset/document.ts";
import { writeNewFile } from "../node/generate.ts";
import { type Change, replace } from "../rotation/advance.ts";
import { type Command as KeyCommand, type NewKey, applyCommand } from "../rotation/commands.ts";
import { wrapKey } from "../rotation/make-key.ts";
import { activeKey, announcedKey, jweOf, keyUses, publishedKeys, recordOf, uriOf } from "../rotation/records.ts";
import type { Wrapping } from "../rotation/wrapping.ts";
import { readImport } from "../server/import-keys.ts";
import type { KeyRecord, KeyUse } from "../store/store.ts";
import { type ChangeFlags, addChangeFlags, changeKeys } from "./change-keys.ts";
import { addListFlags, listKeys } from "./list-keys.ts";
import { type Flags, addStoreSettings, recordsOf, useOption, withKeys, withStore } from "./managed-keys.ts";
import { addNewKeyFlags, openExternal } from "./make-keys.ts";

export function keysCommand(): Command {
  return new Command("keys")
    .description("List the managed keys, and change them one step at a time.")
    .addCommand(listCommand(), { isDefault: true })
    .addCommand(announceCommand())
    .addCommand(stepCommand("activate", "Let an announced key sign now; the active key retires."))
    .addCommand(stepCommand("retire", "Retire the active key; the announced one takes its place."))
    .addCommand(stepCommand("remove", "Take a retiring key away, or one that is announced, for good."))
    .addCommand(revokeCommand())
    .addCommand(importCommand())
    .addCommand(exportCommand())
    .addCommand(rewrapCommand())
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

function listCommand(): Command {
  const command = new Command("list").description("List the managed keys (what jwksd keys does by itself).");
  return addListFlags(command)
    .allowExcessArguments()
    .action((flags: Flags) => {
      // It is the default, so what it is given is a command that does not exist.
      const [unknown] = command.args;
      if (unknown !== undefined)
        command.error(`error: unknown command '${unknown}'; jwksd help keys lists the commands`);
      return listKeys(flags);
    });
}

function announceCommand(): Command {
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
      withKeys(flags, {}, async (open) => {
        const newKey = { use: flags.use, alg: flags.alg };
        await changeKeys(open, { flags, breaks: false, newKey }, (records, now, key) =>
          applyCommand(records, { type: "announce", key: key as NewKey }, open.policy, now),
        );
      }),
    );
}

function stepCommand(type: "activate" | "retire" | "remove", description: string): Command {
  return addChangeFlags(takesKid(new Command(type).description(description)), {
    force: true,
  })
    .addHelpText(
      "after",
      `
A step that would break verifications is refused, and the refusal says from when on it is not. --force --yes does it now.

Examples:
  $ jwksd keys ${type} KID --dry-run
  $ jwksd keys ${type} KID
  $ jwksd keys ${type} KID --force --yes`,
    )
    .action((kid: string, flags: ChangeFlags) =>
      withKeys(flags, {}, async (open) => {
        const force = flags.force === true;
        await changeKeys(open, { flags, breaks: force }, (records, now) =>
          applyCommand(records, { type, kid, force }, open.policy, now),
        );
      }),
    );
}

/** One in 64 thumbprints begins with a dash. */
function takesKid(command: Command): Command {
  return command
    .argument("<kid>", 'jwksd keys lists them; one that begins with a dash comes last, after "--"')
    .configureOutput({
      outputError(text, write) {
        write(text);
        if (text.includes("unknown option")) write(`(a kid that begins with a dash comes last, after "--")\n`);
      },
    });
}

function revokeCommand(): Command {
  const command = new Command("revoke").description(
    "Take a key away at once and for good, because its private half may be known to others.",
  );
  return addChangeFlags(takesKid(command), { yes: true })
    .addHelpText(
      "after",
      `
In the place of the active key comes the announced one, else a new one. Caches may trust the key for as long as they may keep
the set that they have: up to 7,200 seconds, or 300 if the rotation mode has been on for 7,200; what is printed says which.

Examples:
  $ jwksd keys revoke KID --dry-run
  $ jwksd keys revoke KID --yes`,
    )
    .action((kid: string, flags: ChangeFlags) =>
      withKeys(flags, {}, async (open) => {
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

type ImportFlags = ChangeFlags & {
  readonly signer?: string;
  readonly state?: "announced" | "active" | "retiring";
  readonly use?: KeyUse;
  readonly kid?: string;
};

function importCommand(): Command {
  const command = new Command("import")
    .description("Go on with private keys that were used elsewhere: PEM, a private JWK, or a private JWK Set.")
    .argument("[file]", "private key or keys; stays as it is")
    .option("--signer <uri>", "in place of a file: a signing key in an HSM or key service, by its key URI")
    .addOption(
      new Option(
        "--state <state>",
        "of a single key (default: active if it is the first of its use, else announced)",
      ).choices(["announced", "active", "retiring"]),
    )
    .addOption(useOption())
    .option("--kid <kid>", "of a set: this key only; of a PEM file: the kid that it was published under");
  return addChangeFlags(command, { force: true })
    .addHelpText(
      "after",
      `
A set is imported whole into a store without keys: the first key of each use becomes active, the others retire. The kid is
that of the JWK, else --kid, else the key's RFC 7638 thumbprint. Signing keys are EC on P-256.

Examples:
  $ jwksd keys import key.pem --kid 2026-11      tokens that bear this kid go on being verified
  $ jwksd keys import jwks.json                  a private JWK Set, such as that of oidc-provider
  $ jwksd keys import jwks.json --kid old --state retiring
  $ jwksd keys import --signer aws-kms:arn:aws:kms:…     see docs/signers.md`,
    )
    .action(importKeys);
}

async function importKeys(file: string | undefined, flags: ImportFlags): Promise<void> {
  const { signer } = flags;
  if ((file === undefined) === (signer === undefined)) {
    throw new ConfigError("ERR_OPTION_INVALID", "import takes either a file or --signer URI");
  }
  if (signer !== undefined && flags.use === "enc") {
    throw new ConfigError("ERR_OPTION_INVALID", "--use enc does not go with --signer: keys there are signing keys");
  }
  const { isSet, keys } = file === undefined ? { isSet: false, keys: [] } : await readImport(file, flags);
  if (isSet && flags.state !== undefined) {
    throw new ConfigError("ERR_OPTION_INVALID", "--state is for a single key; choose one of the set with --kid");
  }
  await withKeys(flags, { create: true, dryRun: flags.dryRun === true }, async (open) => {
    const before = await recordsOf(open.store);
    if (isSet && before.length > 0) {
      throw new StateError(
        "ERR_TRANSITION",
        "a set is imported whole, and only into a store without keys; choose one of its keys with --kid",
      );
    }
    const found =
      signer === undefined
        ? await Promise.all(
            keys.map(({ kid, use, alg, privateJwk }) => wrapKey(use, alg, privateJwk, open.wrapping, kid)),
          )
        : [await openExternal(open, signer, flags.kid)];
    const force = flags.force === true;
    const commands = importCommands(found, before, flags);
    await changeKeys(open, { flags, breaks: force }, (records, now) => {
      let change: Change = { records, events: [] };
      for (const command of commands) {
        const next = applyCommand(change.records, command, open.policy, now);
        change = { records: next.records, events: [...change.events, ...next.events] };
      }
      return change;
    });
  });
}

/** The signing keys first, because there is no store without one; of each use, the first key is the active one. */
function importCommands(found: readonly NewKey[], before: readonly KeyRecord[], flags: ImportFlags): KeyCommand[] {
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

type ExportFlags = Flags & { readonly private?: true; readonly yes?: true; readonly out?: string };

function exportCommand(): Command {
  const command = new Command("export")
    .description("Print public keys: one by its kid as a JWK, or all that are published as the JWK Set that is served.")
    .argument("[kid]", "default: all published keys")
    .option("--private", "the private key; needs a kid, --out and --yes")
    .option("--out <file>", "write a new file of mode 0600 (default: standard output, public keys only)")
    .option("--yes", "write a private key to a file, where nothing protects it any more");
  return addStoreSettings(command)
    .addHelpText(
      "after",
      `
Examples:
  $ jwksd keys export > jwks.json
  $ jwksd keys export KID --private --out key.jwk --yes`,
    )
    .action(exportKeys);
}

async function exportKeys(kid: string | undefined, flags: ExportFlags): Promise<void> {
  if (flags.private === true) return exportPrivate(kid, flags);
  const records = await withStore(flags, ({ store }) => recordsOf(store));
  const published = keyUses.flatMap((use) => publishedKeys(records, use));
  const value = kid === undefined ? { keys: published.map(publicJwkOf) } : publicJwkOf(recordOf(records, kid));
  const { text } = await makeDocument(value);
  if (flags.out === undefined) return console.log(text);
  await writeNewFile(flags.out, `${text}\n`);
  console.log(`wrote ${flags.out}`);
}

async function exportPrivate(kid: string | undefined, flags: ExportFlags): Promise<void> {
  const { out } = flags;
  if (kid === undefined || out === undefined) {
    throw new ConfigError("ERR_OPTION_INVALID", "a private key is exported by its kid, and to a new file: --out FILE");
  }
  if (flags.yes !== true) {
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was written; --yes writes the private key to ${out}, where nothing but its file mode protects it`,
    );
  }
  await withKeys(flags, {}, async ({ store, wrapping }) => {
    const record = recordOf(await recordsOf(store), kid);
    const [jwe, uri] = [jweOf(record), uriOf(record)];
    if (jwe === undefined) {
      const why = uri === undefined ? `it is ${record.state}` : `it is in ${uri}`;
      throw new StateError("ERR_TRANSITION", `kid ${JSON.stringify(kid)} has no private key here: ${why}`);
    }
    const privateJwk = await wrapping.unwrap(kid, jwe);
    await writeNewFile(out, `${JSON.stringify({ ...privateJwk, ...publicJwkOf(record) }, undefined, 2)}\n`);
  });
  console.log(`wrote ${out}`);
}

function rewrapCommand(): Command {
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
      withKeys(flags, {}, (open) =>
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

function publicJwkOf({ publicJwk, kid, alg, use }: KeyRecord) {
  return { ...publicJwk, kid, alg, use };
}
