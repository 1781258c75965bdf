// The text for what a change does to keys in HSMs and key services.

import { kidText } from "../../base/format.ts";
import type { Change } from "../../rotation/rules/advance.ts";
import type { NewKey } from "../../rotation/rules/commands.ts";
import {
  type ExternalKey,
  type KeyRecord,
  activeKey,
  addedRecords,
  endedExternalKeys,
  uriOf,
} from "../../rotation/rules/records.ts";
import type { Settings } from "../../service/config/setting-definitions.ts";
import type { Signers } from "../../service/config/signers.ts";

const cannotBeUndone = "That cannot be undone, unless its service keeps deleted keys for a while.";

/**
 * Returns where the new signing key of a change is generated, unless all keys are in the store, and where an imported key stays. Commands
 * take `--signer-type` from their own flags and not from `serve`, so a rotation could move signing out of the HSM unnoticed.
 *
 * @param key the new key, if there is one; for a dry run, a key in memory
 */
export function placeEffects(
  { signerType }: Pick<Settings, "signerType">,
  key: NewKey | undefined,
  before: readonly KeyRecord[],
  { records }: Change,
): string[] {
  if (key === undefined) {
    return addedRecords(before, records).flatMap((record) => {
      const uri = uriOf(record);
      return uri === undefined ? [] : [`The private half of "${kidText(record.kid)}" stays in ${uri}.`];
    });
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

/** Returns what `--destroy-external` will destroy if a change is made. */
export function destroyEffects({ destroySigner }: Signers, { records, events }: Change): string[] {
  return destroySigner === undefined ? [] : endedExternalKeys(records, events).map((key) => destroyEffect(key));
}

export function destroyEffect({ kid, uri }: Pick<ExternalKey, "kid" | "uri">, tense: "is" | "was" = "is"): string {
  return `The private half of "${kidText(kid)}" in ${uri} ${tense} destroyed for good. ${cannotBeUndone}`;
}
