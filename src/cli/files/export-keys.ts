import { ConfigError, RotationError, invalidOption } from "../../base/errors.ts";
import { kidText } from "../../base/format.ts";
import { publishedJwk } from "../../keys/jwk/public-members.ts";
import { writeNewFile } from "../../node/new-files.ts";
import { makeDocument } from "../../publish/document.ts";
import { privateJwkOf } from "../../rotation/custody/unwrap-key.ts";
import {
  type KeyRecord,
  type LiveRecord,
  isLive,
  jweOf,
  keyUses,
  publishedKeys,
  recordOf,
  uriOf,
} from "../../rotation/rules/key-records.ts";
import { Command } from "../command.ts";
import { type Io, print } from "../io.ts";
import { type Flags, addStoreSettings, takesKid, withKeys } from "../managed-keys/open-keys.ts";
import { resolveKid } from "../managed-keys/resolve-kid.ts";

type ExportFlags = Flags & { readonly private?: true; readonly yes?: true; readonly out?: string };

export function exportCommand(io: Io): Command {
  const described = new Command("export").description(
    "Print one public key as a JWK, or all published keys as a JWK Set.",
  );
  const command = takesKid(
    described,
    "[kid]",
    "the key's kid, or a prefix of at least 6 characters (default: all published keys)",
  )
    .option("--private", "export the private key; requires a kid, --out and --yes")
    .option("--out <file>", "file to create, with mode 0600 (default: standard output, only for public keys)")
    .option("--yes", "allow the private key to be written to a file unencrypted");
  return addStoreSettings(command)
    .notes(`
Examples:
  $ jwksd keys export > jwks.json
  $ jwksd keys export KID --private --out key.jwk --yes`)
    .action((kid: string | undefined, flags: ExportFlags) => exportKeys(io, kid, flags));
}

async function exportKeys(io: Io, kid: string | undefined, flags: ExportFlags): Promise<void> {
  if (flags.private === true) return exportPrivate(io, kid, flags);
  const records = await withKeys(io, flags, {}, async ({ document }) => document.records);
  const published = keyUses.flatMap((use) => publishedKeys(records, use));
  const value = kid === undefined ? { keys: published.map(publishedJwk) } : publishedJwk(liveRecord(records, kid));
  const { text } = await makeDocument(value);
  if (flags.out === undefined) return print(io, text);
  await writeNewFile(flags.out, `${text}\n`);
  print(io, `wrote ${flags.out}`);
}

async function exportPrivate(io: Io, kid: string | undefined, flags: ExportFlags): Promise<void> {
  const { out } = flags;
  if (kid === undefined || out === undefined) {
    throw invalidOption("--private requires a kid and a new file; pass the kid and --out FILE");
  }
  if (flags.yes !== true) {
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was written; to write the private key to ${out} unencrypted, protected only by the file's mode, add --yes`,
    );
  }
  const written = await withKeys(io, flags, {}, async ({ custody, document }) => {
    const record = liveRecord(document.records, kid);
    if (jweOf(record) === undefined) {
      const name = `kid ${JSON.stringify(record.kid)}`;
      throw new RotationError(
        "ERR_TRANSITION",
        `the private key of ${name} is in ${uriOf(record)}; export it from that service`,
      );
    }
    const privateJwk = await privateJwkOf(record, custody);
    await writeNewFile(out, `${JSON.stringify({ ...privateJwk, ...publishedJwk(record) }, undefined, 2)}\n`);
    return record.kid;
  });
  print(io, `wrote ${out}, kid ${kidText(written)}`);
}

/**
 * Returns the record of a key that is still in the store.
 *
 * @throws RotationError `ERR_KID_UNMANAGED`; `ERR_TRANSITION` if the key was removed, because only its thumbprint is kept
 */
function liveRecord(records: readonly KeyRecord[], given: string): LiveRecord {
  const record = recordOf(records, resolveKid(records, given));
  if (isLive(record)) return record;
  throw new RotationError(
    "ERR_TRANSITION",
    `kid ${JSON.stringify(record.kid)} is ${record.state}, so its key is no longer in the store`,
  );
}
