import { RotationError, StoreError } from "../../base/errors.ts";
import { isDate } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import type { PublicJwk } from "../../keys/jwk/public-members.ts";

export type KeyUse = "sig" | "enc";

/**
 * - `announced`: published, not yet in use
 * - `active`: signs; for an encryption key, listed before other encryption keys in the published set
 * - `retiring`: published for verification only; an encryption key is no longer published and only decrypts
 */
export type LiveState = "announced" | "active" | "retiring";

/**
 * The final state of a key. Neither the key nor its kid is ever used again.
 *
 * - `removed`: no longer needed
 * - `revoked`: removed immediately, in an emergency
 */
export type EndState = "removed" | "revoked";

export type KeyState = LiveState | EndState;

/** Location of a private key. */
export type PrivateHalf =
  /** The private JWK, encrypted as a JWE in compact serialization. */
  | { readonly jwe: string }
  /** URI of an immutable key version in an HSM or a key service. */
  | { readonly uri: string };

/**
 * A key that is published or used for decryption. Plain JSON; all times are in epoch milliseconds by the store's clock.
 */
export interface LiveRecord {
  readonly kid: string;
  readonly use: KeyUse;
  /** `ES256` or, for an encryption key, its key management algorithm. */
  readonly alg: string;
  readonly state: LiveState;
  /** Thumbprint (RFC 7638). */
  readonly thumbprint: string;
  readonly publicJwk: PublicJwk;
  readonly privateHalf: PrivateHalf;
  readonly announcedAt: number;
  /** Time at which a read of the store first found the key announced. The propagation period starts then. */
  readonly publishedAt?: number;
  /** Time at which the key first became active. */
  readonly activatedAt?: number;
  /** Number of times that the key has become active, if more than one. Each rollback to the key adds one. */
  readonly activations?: number;
  readonly retiredAt?: number;
  /** Time at which a read of the store first found the key retiring. The retirement period starts then. */
  readonly replacedAt?: number;
  /** Revision in which the key entered its state. The waiting period begins once each target has this revision. */
  readonly stateRevision?: number;
  /**
   * Whether the key signed before its propagation period ended: because it was forced to, because it was the first key,
   * or because it had been published elsewhere.
   */
  readonly unannounced?: true;
  /** Longest propagation period that any policy set while the key was announced. */
  readonly announceForSeconds?: number;
  /** Longest retirement period of any policy during the key's life. */
  readonly retireForSeconds?: number;
  /** Longest `maxStaleSeconds` of any policy during the key's life. */
  readonly maxStaleSeconds?: number;
  /** Whether the waiting period was restarted because its end was missed. That happens only once. */
  readonly restarted?: true;
  /**
   * On an active key: the process that is generating the next key, and the time at which other processes stop waiting
   * for it.
   */
  readonly nextMadeBy?: { readonly process: string; readonly until: number };
}

/**
 * The record that remains of a removed or revoked key. It ensures that neither the key nor its kid is ever used again.
 * Plain JSON.
 */
export interface Tombstone {
  readonly kid: string;
  readonly use: KeyUse;
  readonly state: EndState;
  readonly thumbprint: string;
  /** Epoch milliseconds. */
  readonly endedAt: number;
  /** URI of a private key that may still exist in an HSM or key service. */
  readonly uri?: string;
  /**
   * Public key of a recently removed signing key. It is kept because an ID token can serve as a hint long after it has
   * expired. Missing for a revoked key.
   *
   * @see OpenID Connect Core 1.0 section 3.1.2.1 (`id_token_hint`)
   */
  readonly publicJwk?: PublicJwk;
  /** Latest time, in epoch milliseconds, at which caches that follow `Cache-Control` may trust a revoked key. */
  readonly trustedUntil?: number;
  /** Longest retirement period of any policy during the key's life. */
  readonly retireForSeconds?: number;
}

/** Record of a managed key, from its announcement on. Records are permanent. */
export type KeyRecord = LiveRecord | Tombstone;

/** An entry in the audit log. Plain JSON; never contains key material. */
export interface AuditEvent {
  /** Epoch milliseconds. */
  readonly at: number;
  readonly type:
    | "announced"
    | "activated"
    | "retired"
    | "removed"
    | "revoked"
    | "imported"
    | "rewrapped"
    | "restarted"
    | "policy";
  /** Kid of the key; missing for a policy change, and for a rewrap without live keys. */
  readonly kid?: string;
  readonly use?: KeyUse;
  /** Clause that names the rule or command behind the change. */
  readonly reason: string;
}

export const keyUses = ["sig", "enc"] as const satisfies readonly KeyUse[];

/** The algorithm of the first key for each use. Most relying parties can encrypt to an RSA key. */
const firstAlg: Readonly<Record<KeyUse, string>> = { sig: "ES256", enc: "RSA-OAEP-256" };

/**
 * Returns the algorithm for the next key with the given use. It is the algorithm of the active key or, if no key is
 * active, the algorithm for a first key.
 */
export function nextAlg(records: readonly KeyRecord[], use: KeyUse): string {
  return activeKey(records, use)?.alg ?? firstAlg[use];
}

/** Reports whether a key is neither removed nor revoked. */
export function isLive(record: KeyRecord): record is LiveRecord {
  return record.state !== "removed" && record.state !== "revoked";
}

/**
 * Returns the final state of the signing key with the given kid, or `undefined` if there was no such key or it is live.
 */
export function endOf(records: readonly KeyRecord[], kid: string): EndState | undefined {
  const record = records.find((record) => record.use === "sig" && record.kid === kid);
  return record === undefined || isLive(record) ? undefined : record.state;
}

export function liveRecords(records: readonly KeyRecord[]): readonly LiveRecord[] {
  return records.filter(isLive);
}

/** Returns the list with its live records changed. If nothing changes, returns the same list. */
export function mapLive(
  records: readonly KeyRecord[],
  change: (record: LiveRecord) => KeyRecord,
): readonly KeyRecord[] {
  const changed = records.map((record) => (isLive(record) ? change(record) : record));
  return changed.some((record, index) => record !== records[index]) ? changed : records;
}

/** A key pair whose private key is in an HSM or key service. */
export type ExternalKey = Pick<KeyRecord, "kid" | "thumbprint"> & { readonly uri: string };

/** Returns the external keys that these events removed or revoked. They may still exist in their HSM or key service. */
export function endedExternalKeys(records: readonly KeyRecord[], events: readonly AuditEvent[]): ExternalKey[] {
  const ended = new Set(events.filter(({ type }) => type === "removed" || type === "revoked").map(({ kid }) => kid));
  return records.flatMap((record) => {
    const uri = uriOf(record);
    return ended.has(record.kid) && uri !== undefined ? [{ kid: record.kid, thumbprint: record.thumbprint, uri }] : [];
  });
}

/** Returns the wrapped private key if it is in the store. */
export function jweOf({ privateHalf }: Pick<LiveRecord, "privateHalf">): string | undefined {
  return "jwe" in privateHalf ? privateHalf.jwe : undefined;
}

/** Returns the URI of the private key if it is in an HSM or key service. */
export function uriOf(record: Tombstone | Pick<LiveRecord, "privateHalf">): string | undefined {
  if (!("privateHalf" in record)) return record.uri;
  return "uri" in record.privateHalf ? record.privateHalf.uri : undefined;
}

/**
 * Returns the record with the given kid.
 *
 * @throws RotationError `ERR_KID_UNMANAGED`
 */
export function recordOf(records: readonly KeyRecord[], kid: string): KeyRecord {
  const record = records.find((record) => record.kid === kid);
  if (record !== undefined) return record;
  const known = records.length === 0 ? "it has no keys at all" : "for a list of all kids, see the manager's records";
  throw new RotationError("ERR_KID_UNMANAGED", `the store has no key with the kid ${JSON.stringify(kid)}; ${known}`);
}

/** Returns the keys that a change added. */
export function addedRecords(before: readonly KeyRecord[], after: readonly KeyRecord[]): LiveRecord[] {
  const known = new Set(before.map(({ kid }) => kid));
  return liveRecords(after).filter(({ kid }) => !known.has(kid));
}

/** Returns the signing key that a change makes active, or `undefined` if the active key stays the same. */
export function newlyActive(before: readonly KeyRecord[], after: readonly KeyRecord[]): LiveRecord | undefined {
  const next = activeKey(after, "sig");
  return next?.kid === activeKey(before, "sig")?.kid ? undefined : next;
}

/** For each state, the member of a live record that contains the time at which the state began. */
const stateTime = {
  announced: "announcedAt",
  active: "activatedAt",
  retiring: "retiredAt",
} as const satisfies Record<LiveState, keyof LiveRecord>;

/** Returns the time at which a key's state began, in epoch milliseconds. */
export function stateSince(record: KeyRecord): number {
  return (isLive(record) ? record[stateTime[record.state]] : record.endedAt) ?? Number.NaN;
}

export function activeKey(records: readonly KeyRecord[], use: KeyUse): LiveRecord | undefined {
  return liveRecords(records).find((record) => record.use === use && record.state === "active");
}

/** Returns the announced key for a use; there is at most one. */
export function announcedKey(records: readonly KeyRecord[], use: KeyUse): LiveRecord | undefined {
  return liveRecords(records).find((record) => record.use === use && record.state === "announced");
}

export function retiringKeys(records: readonly KeyRecord[], use: KeyUse): LiveRecord[] {
  return liveRecords(records).filter((record) => record.use === use && record.state === "retiring");
}

/**
 * Returns the published keys, in this order: the active key, the announced key and, for signing keys, the retiring
 * keys, most recent first.
 */
export function publishedKeys(records: readonly KeyRecord[], use: KeyUse): LiveRecord[] {
  const retiring = retiringKeys(records, use).sort((a, b) => stateSince(b) - stateSince(a));
  return [activeKey(records, use), announcedKey(records, use), ...(use === "sig" ? retiring : [])].filter(
    (record) => record !== undefined,
  );
}

/**
 * Reports whether the issuer has been decommissioned: it had keys, and none of them signs or will sign. Its last keys
 * may still be retiring.
 */
export function isDecommissioned(records: readonly Pick<KeyRecord, "use" | "state">[]): boolean {
  return records.length > 0 && !records.some(({ use, state }) => use === "sig" && state === "active");
}

/**
 * Reports whether rotation mode is on. It is on while any key is announced or retiring, and permanently once the issuer
 * has been decommissioned. While it is on, caches keep a set only for a short time.
 */
export function isRotating(records: readonly Pick<KeyRecord, "use" | "state">[]): boolean {
  return isDecommissioned(records) || records.some(({ state }) => state === "announced" || state === "retiring");
}

/**
 * Rejects records that break a rule. Because the store's MAC covers the records, invalid ones come from a bug in jwksd
 * or from another version.
 *
 * @param mayBeDecommissioned whether the issuer may have been decommissioned, so that no signing key is active.
 * Default: `false`
 * @throws StoreError `ERR_RECORDS_INVALID`
 */
export function checkRecords(records: readonly KeyRecord[], mayBeDecommissioned = false): void {
  for (const record of records) checkRecord(record);
  checkDistinct(records);
  for (const use of keyUses) {
    const inState = (state: LiveState): number =>
      liveRecords(records).filter((record) => record.use === use && record.state === state).length;
    const isNeeded = use === "sig" && records.length > 0 && (!mayBeDecommissioned || inState("announced") > 0);
    const active = inState("active");
    if (active > 1 || active < Number(isNeeded)) throw invalid(`${active} keys with use "${use}" are active`);
    if (inState("announced") > 1) throw invalid(`more than one key with use "${use}" is announced`);
  }
}

/** Members of a live record that contain times, in the order in which they occur. All are in epoch milliseconds. */
export const recordTimes = [
  "announcedAt",
  "publishedAt",
  "activatedAt",
  "retiredAt",
  "replacedAt",
] as const satisfies readonly (keyof LiveRecord)[];

/** Checks that no kid and no key occurs twice. */
function checkDistinct(records: readonly KeyRecord[]): void {
  const kids = new Set<string>();
  const keys = new Map<string, string>();
  for (const { kid, thumbprint } of records) {
    if (kids.has(kid)) throw invalid(`two records have the kid ${JSON.stringify(kid)}`);
    const other = keys.get(thumbprint);
    if (other !== undefined)
      throw invalid(`kid ${JSON.stringify(other)} and kid ${JSON.stringify(kid)} are the same key`);
    kids.add(kid);
    keys.set(thumbprint, kid);
  }
}

function checkRecord(record: KeyRecord): void {
  const { kid, state } = record;
  if (isLive(record) && !Object.hasOwn(stateTime, state)) {
    throw invalid(`kid ${JSON.stringify(kid)} has an unknown state`);
  }
  if (!isDate(stateSince(record))) {
    throw invalid(`kid ${JSON.stringify(kid)}: the time at which it became ${state} is missing`);
  }
  if (!isLive(record)) return;
  for (const name of recordTimes) {
    if (!isDate(record[name] ?? 0)) throw invalid(`kid ${JSON.stringify(kid)}: ${name} is not a time`);
  }
}

function invalid(what: string): StoreError {
  return new StoreError("ERR_RECORDS_INVALID", `the key records are invalid: ${printable(what)}`);
}
