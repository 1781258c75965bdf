import { Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { invalidOption } from "../../base/errors.ts";
import { keyAlgs, externalKey, makeLocalKey } from "../../rotation/manager/private-keys.ts";
import { probeSigner } from "../../rotation/manager/private-keys.ts";
import type { NewKey } from "../../rotation/rules/commands.ts";
import { type KeyUse, nextAlg } from "../../rotation/rules/key-records.ts";
import type { Signers } from "../../service/config/signers.ts";
import type { Command } from "../command.ts";
import { printNotice } from "../io.ts";
import { type CommandKeys, useOption } from "./open-keys.ts";

/** Extends a command with the flags for generating a key. */
export function addNewKeyFlags(command: Command): Command {
  const help = "algorithm for a new encryption key (default: the active key's algorithm); signing keys use ES256";
  return command.addOption(useOption().default("sig")).addOption(new Option("--alg <alg>", help).choices(keyAlgs));
}

/** Generates a key in memory with the given alg. Default: the active key's alg. */
export function generateDraft(
  { custody, document }: CommandKeys,
  { use, alg }: { readonly use: KeyUse; readonly alg?: string | undefined },
): Promise<NewKey> {
  if (alg !== undefined && (alg === "ES256") !== (use === "sig")) {
    throw invalidOption(`--alg ${alg} cannot be used for keys with the use "${use}"`);
  }
  return makeLocalKey(use, alg ?? nextAlg(document.records, use), custody);
}

/**
 * Returns the key to use: the draft or, if signing keys are generated in an HSM or key service, a new key from there.
 */
export async function generateFinal({ io, keyring, settings }: CommandKeys, draft: NewKey): Promise<NewKey> {
  if (draft.use === "enc" || !keyring.isExternal) return draft;
  return keyring.makeKey("sig", "ES256").catch((error: unknown) => {
    printNotice(
      io,
      `nothing was changed, because a key cannot be generated in ${settings.signerType} at the moment; to generate it in the store, set --signer-type local`,
    );
    throw error;
  });
}

/** Opens an existing key in an HSM or key service and checks that it signs. */
export async function openExternal({ openSigner }: Signers, uri: string, kid: string | undefined): Promise<NewKey> {
  const signer = await openSigner(uri);
  try {
    const key = await externalKey(signer, kid);
    await probeSigner(signer, key.publicJwk, uri, { clock: systemClock });
    return key;
  } finally {
    await signer.close();
  }
}
