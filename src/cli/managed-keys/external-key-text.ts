// Messages about the effects of a change on keys in HSMs and key services.

import { kidText } from "../../base/format.ts";
import type { KeyChange } from "../../rotation/rules/advance.ts";
import type { NewKey } from "../../rotation/rules/commands.ts";
import {
  type ExternalKey,
  type KeyRecord,
  activeKey,
  addedRecords,
  endedExternalKeys,
  uriOf,
} from "../../rotation/rules/key-records.ts";
import type { Settings } from "../../service/config/setting-definitions.ts";
import type { Signers } from "../../service/config/signers.ts";

const cannotBeUndone = "This cannot be undone unless the service keeps deleted keys for a while.";

/**
 * Returns messages that say where a change generates its new signing key (unless all keys are in the store) and where
 * an imported key stays. Without these messages, a rotation could move signing out of the HSM unnoticed, because
 * commands have their own `--signer-type` flag and do not know the flag that `serve` was given.
 *
 * @param key the new key, if there is one; in a dry run, a key in memory
 */
export function placeEffects(
  { signerType }: Pick<Settings, "signerType">,
  key: NewKey | undefined,
  before: readonly KeyRecord[],
  { records }: KeyChange,
): string[] {
  if (key === undefined) {
    return addedRecords(before, records).flatMap((record) => {
      const uri = uriOf(record);
      return uri === undefined ? [] : [`The private key of "${kidText(record.kid)}" stays in ${uri}.`];
    });
  }
  if (key.use !== "sig" || !records.some(({ kid }) => kid === key.kid)) return [];
  if (signerType !== "local") return [`The new key is generated in ${uriOf(key) ?? signerType}.`];
  const active = activeKey(before, "sig");
  const uri = active && uriOf(active);
  if (uri === undefined) return [];
  const [type] = uri.split(":", 1);
  return [
    `The new key is generated in the store, but the active key is in ${uri}. To generate it there, add --signer-type ${type}.`,
  ];
}

/** Returns messages about the keys that `--destroy-external` will destroy. */
export function destroyEffects({ destroySigner }: Signers, { records, events }: KeyChange): string[] {
  return destroySigner === undefined ? [] : endedExternalKeys(records, events).map((key) => destroyEffect(key));
}

/** Returns the message about an external key that is or was destroyed. */
export function destroyEffect({ kid, uri }: Pick<ExternalKey, "kid" | "uri">, tense: "is" | "was" = "is"): string {
  return `The private key of "${kidText(kid)}" in ${uri} ${tense} destroyed permanently. ${cannotBeUndone}`;
}
