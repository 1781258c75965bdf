// What a change does to keys in HSMs and key services.
import type { Change } from "../../rotation/rules/advance.ts";
import type { NewKey } from "../../rotation/rules/commands.ts";
import type { Keyring } from "../../rotation/manager/keyring.ts";
import {
  type ExternalKey,
  activeKey,
  addedRecords,
  endedExternalKeys,
  externalOf,
  uriOf,
} from "../../rotation/rules/records.ts";
import { kidText } from "../../rotation/rules/format.ts";
import type { Settings } from "../../service/config/setting-definitions.ts";
import type { Signers } from "../../service/config/signers.ts";
import type { KeyRecord } from "../../rotation/store/store.ts";
import { type Io, tell } from "../io.ts";
import type { CommandKeys } from "./open-keys.ts";

const cannotBeUndone = "That cannot be undone, unless its service keeps deleted keys for a while.";

/**
 * Where the new signing key of a change is made, unless all is in the store, and where one that is imported is. Commands have their
 * `--signer-type` from their own flags, not from `serve`, so a key may come out of the HSM unnoticed.
 *
 * @param key the new key, if there is one: of a dry run, one in memory
 */
export function placeEffects(
  { signerType }: Pick<Settings, "signerType">,
  key: NewKey | undefined,
  before: readonly KeyRecord[],
  { records }: Change,
): string[] {
  if (key === undefined) {
    const imported = addedRecords(before, records).flatMap((record) => externalOf(record) ?? []);
    return imported.map(({ kid, uri }) => `The private half of "${kidText(kid)}" stays in ${uri}.`);
  }
  if (key.use !== "sig" || !records.some(({ kid }) => kid === key.kid)) return [];
  if (signerType !== "local") return [`The new key is made in ${uriOf(key) ?? signerType}.`];
  const active = activeKey(before, "sig");
  const uri = active && uriOf(active);
  if (uri === undefined) return [];
  const [type] = uri.split(":", 1);
  return [
    `The new key is made in the store; the active one is in ${uri}. With --signer-type ${type} it is made there.`,
  ];
}

/** What `--destroy-external` does with a change, before it is done. */
export function destroyEffects({ destroySigner }: Signers, { records, events }: Change): string[] {
  return destroySigner === undefined ? [] : endedExternalKeys(records, events).map((key) => destroyEffect(key));
}

export function destroyEffect({ kid, uri }: Pick<ExternalKey, "kid" | "uri">, tense: "is" | "was" = "is"): string {
  return `The private half of "${kidText(kid)}" in ${uri} ${tense} destroyed for good. ${cannotBeUndone}`;
}

/** Does what `--destroy-external` asks for, and gives back what was destroyed. The change stands whatever becomes of this. */
export async function destroyEnded(
  io: Io,
  { destroySigner }: Signers,
  keyring: Keyring,
  change: Change,
): Promise<string[]> {
  if (destroySigner === undefined) {
    for (const { kid, uri } of endedExternalKeys(change.records, change.events))
      tell(io, `${uri} stays where it is; to destroy it: ${commandFor(kid)}`);
    return [];
  }
  const done: string[] = [];
  for await (const { kid, uri, error } of keyring.destroyEnded(change)) {
    if (error === undefined) done.push(destroyEffect({ kid, uri }, "was"));
    else {
      const why = `${uri} could not be destroyed: ${(error as Error).message}`;
      tell(io, `${why}; when that is mended: ${commandFor(kid)}`);
      io.exitCode = 1;
    }
  }
  return done;
}

const commandFor = (kid: string): string => `jwksd keys destroy --yes -- ${kidText(kid)}`;

/** Tells of a key that was made for a change and is in no record. Destroys the key if that is certain. */
export async function leaveUnrecorded({ io, keyring }: CommandKeys, uri: string, isCertain: boolean): Promise<void> {
  const isDestroyed = isCertain && (await keyring.destroyUnrecorded(uri));
  tell(io, `${uri} was made, and nothing uses it${isDestroyed ? ", so it was destroyed again" : ""}`);
}
