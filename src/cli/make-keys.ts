import { Option, type Command } from "commander";
import { ConfigError } from "../errors.ts";
import type { NewKey } from "../rotation/commands.ts";
import { externalKey, makeLocalKey } from "../manager/make-key.ts";
import { nextAlg } from "../rotation/records.ts";
import type { Signers } from "../server/signers.ts";
import type { ExternalSigner } from "../signer/signer.ts";
import type { KeyRecord, KeyUse } from "../store/store.ts";
import { leaveOver } from "./external-keys.ts";
import { tell } from "./io.ts";
import { type OpenKeys, useOption } from "./managed-keys.ts";

const algs = [
  "ES256",
  "RSA-OAEP-256",
  "RSA-OAEP-384",
  "RSA-OAEP-512",
  "RSA-OAEP",
  "ECDH-ES",
  "ECDH-ES+A128KW",
  "ECDH-ES+A256KW",
];

/** Flags of commands that make a key. */
export function addNewKeyFlags(command: Command): Command {
  const help = "of the new encryption key; signing keys are ES256 (default: that of the active one)";
  return command.addOption(useOption().default("sig")).addOption(new Option("--alg <alg>", help).choices(algs));
}

/** A key in memory, with the alg that was asked for, else with that of the active one. */
export function makeDraft(
  { vault }: OpenKeys,
  { use, alg }: { readonly use: KeyUse; readonly alg?: string | undefined },
  records: readonly KeyRecord[],
): Promise<NewKey> {
  if (alg !== undefined && (alg === "ES256") !== (use === "sig")) {
    throw new ConfigError("ERR_OPTION_INVALID", `--alg ${alg} is not for keys of use "${use}"`);
  }
  return makeLocalKey(use, alg ?? nextAlg(records, use), vault);
}

/** The draft itself, or a new key in the HSM or key service in which the configuration has signing keys made. */
export async function makeReal({ io, signers, settings, vault }: OpenKeys, draft: NewKey): Promise<NewKey> {
  const { createSigner } = signers;
  if (draft.use === "enc" || createSigner === undefined) return draft;
  const signer = await createSigner({ issuer: vault.owner.issuer }).catch((error: unknown) => {
    tell(
      io,
      `nothing was changed, because no key can be made in ${settings.signerType} now; --signer-type local makes it in the store`,
    );
    throw error;
  });
  return recorded(signer).catch(async (error: unknown) => {
    await leaveOver(io, signers, signer.uri, true);
    throw error;
  });
}

/** A key that exists in an HSM or key service. */
export async function openExternal({ openSigner }: Signers, uri: string, kid: string | undefined): Promise<NewKey> {
  return recorded(await openSigner(uri), kid);
}

async function recorded(signer: ExternalSigner, kid?: string): Promise<NewKey> {
  try {
    return await externalKey(signer, kid);
  } finally {
    await signer.close();
  }
}
