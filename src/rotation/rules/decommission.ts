import { RotationError } from "../../base/errors.ts";
import { timeText } from "../../base/format.ts";
import { type At, type KeyChange, end, replace } from "./advance.ts";
import { type KeyRecord, type LiveRecord, isDecommissioned, isLive, liveRecords } from "./key-records.ts";
import { type RotationPolicy, cachedForSeconds } from "./policy.ts";
import { trustedUntil } from "./rotation-mode-intervals.ts";
import { longestRetirementMs } from "./waits.ts";

/**
 * The only key in a decommissioned issuer's set. Its x-coordinate is the SHA-256 hash of "jwksd: this issuer was
 * decommissioned", so no one has ever had its private key. A set with this key replaces the keys that verifiers have
 * cached. If a set were empty or the request failed, many verifiers would keep their cached keys.
 */
export const placeholderKey = {
  kid: "issuer-decommissioned",
  publicJwk: {
    kty: "EC",
    crv: "P-256",
    x: "jiY2ERmj9RhLmxcG33rXj-72usexZ9IDCrsmgdK0beY",
    y: "k-hSho2ADqaX3WW-BCj94acXc6LyDUVFOHDfykxoGjI",
  },
} as const;

/** Message about a decommissioned issuer. */
export const decommissionedText = "the issuer has been decommissioned, and no key signs for it";

const reason = "an operator decommissioned the issuer";

/**
 * Decommissions the issuer: its keys never sign again. They retire, each with a new waiting period. A key that is
 * already retiring also gets a new one, because a restored backup may lack a rollback to that key.
 *
 * @param now whether all keys are revoked instead, even if the issuer has already been decommissioned
 * @throws RotationError `ERR_TRANSITION` if there are no keys
 */
export function decommissionIssuer(change: KeyChange, now: boolean, at: At): KeyChange {
  const { records } = change;
  if (records.length === 0)
    throw new RotationError("ERR_TRANSITION", "the store has no keys, so there is no issuer to decommission");
  const live = liveRecords(records);
  if (now) {
    const until = trustedUntil(records, at.now, at.policy);
    return live.reduce((change, { kid }) => end(change, kid, "revoked", at, reason, until), change);
  }
  return isDecommissioned(records) ? change : live.reduce((change, record) => retire(change, record, at), change);
}

function retire(change: KeyChange, record: LiveRecord, at: At): KeyChange {
  const { use, state, kid } = record;
  if (state === "announced" && use === "sig") return end(change, kid, "removed", at, reason);
  const { nextMadeBy: _next, replacedAt: _replaced, restarted: _again, ...rest } = record;
  if (state === "retiring") return replace(change, rest, at.now, "restarted", reason);
  // A client may have encrypted to an announced encryption key.
  return replace(change, { ...rest, state: "retiring", retiredAt: at.now }, at.now, "retired", reason);
}

/**
 * Rejects a decommissioned issuer until its name can be used again, which is when no cache trusts its keys anymore and
 * all of its tokens have expired.
 *
 * @throws RotationError `ERR_ISSUER_DECOMMISSIONED`
 */
export function checkNotDecommissioned(records: readonly KeyRecord[], { policy, now, areClocksOff = false }: At): void {
  if (!isDecommissioned(records)) return;
  const at = reusableAt(records, policy);
  if (now >= at && !areClocksOff) return;
  const isKnown = at !== Infinity && !areClocksOff;
  const until = areClocksOff
    ? "while this machine's clock differs from the store's clock"
    : "while its keys are still retiring";
  const message = `${decommissionedText}; its name cannot be used again ${isKnown ? `before ${timeText(at)}` : until}`;
  throw new RotationError("ERR_ISSUER_DECOMMISSIONED", message, isKnown ? { allowedAt: at } : {});
}

/**
 * Returns the time from which a decommissioned issuer's name can be used again, in epoch milliseconds; `Infinity` while
 * the issuer has keys. Until then, caches may trust its keys, and its tokens may be valid. The policy that applied when
 * the tokens were issued may have allowed longer token lifetimes than today's policy.
 */
function reusableAt(records: readonly KeyRecord[], policy: RotationPolicy): number {
  const cachedMs = cachedForSeconds.long * 1000;
  const gone = records.map((record) =>
    isLive(record) ? Infinity : record.endedAt + cachedMs + longestRetirementMs(record, policy),
  );
  return Math.max(...gone);
}
