import { Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { invalidOption } from "../../base/errors.ts";
import { keyAlgs, externalKey, makeLocalKey } from "../../rotation/manager/private-keys.ts";
import { probeSigner } from "../../rotation/manager/private-keys.ts";
import type { NewKey } from "../../rotation/rules/commands.ts";
import { type KeyUse, nextAlg } from "../../rotation/rules/records.ts";
import type { Signers } from "../../service/config/signers.ts";
import type { Command } from "../command.ts";
import { tell } from "../io.ts";
import { type CommandKeys, useOption } from "./open-keys.ts";

/** Flags of commands that make a key. */
export function addNewKeyFlags(command: Command): Command {
  const help = "algorithm of a new encryption key; signing keys are ES256 (default: that of the active key)";
  return command.addOption(useOption().default("sig")).addOption(new Option("--alg <alg>", help).choices(keyAlgs));
}

/** A key in memory, with the alg that was asked for, else with that of the active one. */
export function makeDraft(
  { custody, document }: CommandKeys,
  { use, alg }: { readonly use: KeyUse; readonly alg?: string | undefined },
): Promise<NewKey> {
  if (alg !== undefined && (alg === "ES256") !== (use === "sig")) {
    throw invalidOption(`--alg ${alg} is not for keys of use "${use}"`);
  }
  return makeLocalKey(use, alg ?? nextAlg(document.records, use), custody);
}

/** The draft itself, or a new key in the HSM or key service in which the configuration has signing keys made. */
export async function makeReal({ io, keyring, settings }: CommandKeys, draft: NewKey): Promise<NewKey> {
  if (draft.use === "enc" || !keyring.isExternal) return draft;
  return keyring.makeKey("sig", "ES256").catch((error: unknown) => {
    tell(
      io,
      `nothing was changed, because no key can be made in ${settings.signerType} now; --signer-type local makes it in the store`,
    );
    throw error;
  });
}

/** A key that exists in an HSM or key service. */
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
