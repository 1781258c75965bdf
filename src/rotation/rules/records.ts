import { StateError, StoreError } from "../../base/errors.ts";
import { isDate } from "../../base/format.ts";
import type { PublicJwk } from "../../keys/jwk/public.ts";

export type KeyUse = "sig" | "enc";

/**
 * - `announced`: published, not in use yet
 * - `active`: signs; of an encryption key: published first
 * - `retiring`: published for verification only; of an encryption key: no longer published, kept for decryption
 */
export type LiveState = "announced" | "active" | "retiring";

/**
 * How a key ended. Its kid and its key are never used again.
 *
 * - `removed`: no longer needed
 * - `revoked`: removed at once, in an emergency
 */
export type EndState = "removed" | "revoked";

export type KeyState = LiveState | EndState;

/** Where the private half of a key is. */
export type PrivateHalf =
  /** Wrapped: a JWE in compact serialization that holds the private JWK. */
  | { readonly jwe: string }
  /** In an HSM or a key service: the URI of an immutable key version. */
  | { readonly uri: string };

/** A key that is published or that decrypts. Plain JSON; all times are epoch milliseconds by the clock of the store. */
export interface LiveRecord {
  readonly kid: string;
  readonly use: KeyUse;
  /** `ES256`, or the key management algorithm of an encryption key. */
  readonly alg: string;
  readonly state: LiveState;
  /** RFC 7638. */
  readonly thumbprint: string;
  readonly publicJwk: PublicJwk;
  readonly privateHalf: PrivateHalf;
  readonly announcedAt: number;
  /** The time of a read that saw the key announced. Its announcement counts from then. */
  readonly publishedAt?: number;
  readonly activatedAt?: number;
  readonly retiredAt?: number;
  /** The time of a read that saw the key retiring. Its retirement counts from then. */
  readonly replacedAt?: number;
  /** The revision in which its state began. A wait begins when each copy has it. */
  readonly stateRevision?: number;
  /** The key signed before its announcement was over: by force, as the first key, or because it had been published elsewhere. */
  readonly unannounced?: true;
  /** The longest announcement that any policy asked for while the key was announced. */
  readonly announceForSeconds?: number;
  /** The longest retirement that any policy asked for while the key lived. */
  readonly retireForSeconds?: number;
  /** The longest `maxStaleSeconds` of any policy while the key lived. */
  readonly maxStaleSeconds?: number;
  /** Its wait has begun again, because its end was missed. That happens once. */
  readonly restarted?: true;
  /** A process makes the next key; the others leave it to that process until then. Of active keys. */
  readonly nextMadeBy?: { readonly process: string; readonly until: number };
}

/** What stays of a key, so that neither its kid nor the key is ever used again. Plain JSON. */
export interface Tombstone {
  readonly kid: string;
  readonly use: KeyUse;
  readonly state: EndState;
  readonly thumbprint: string;
  /** Epoch milliseconds. */
  readonly endedAt: number;
  /** Of a key in an HSM or a key service, where it may still exist. */
  readonly uri?: string;
  /**
   * Of the newest removed signing keys: an ID token may be a hint long after it has expired. A revoked key has none.
   *
   * @see OpenID Connect Core 1.0 section 3.1.2.1 (`id_token_hint`)
   */
  readonly publicJwk?: PublicJwk;
  /** Of a revoked key: until when caches that keep to `Cache-Control` may trust it, in epoch milliseconds. */
  readonly trustedUntil?: number;
}

/** One managed key, from its announcement on and for good. */
export type KeyRecord = LiveRecord | Tombstone;

/** One entry of the audit log. Plain JSON; never holds key material. */
export interface KeyEvent {
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
  /** Not of a change of the policy. */
  readonly kid?: string;
  readonly use?: KeyUse;
  /** Why, in words: the rule or the command behind it. */
  readonly reason: string;
}

export const keyUses = ["sig", "enc"] as const satisfies readonly KeyUse[];

/** The algorithm of the first key of each use. Most relying parties can encrypt to RSA. */
const firstAlg: Readonly<Record<KeyUse, string>> = { sig: "ES256", enc: "RSA-OAEP-256" };

/** The algorithm of the next key of a use: that of the active one. */
export function nextAlg(records: readonly KeyRecord[], use: KeyUse): string {
  return activeKey(records, use)?.alg ?? firstAlg[use];
}

/** Neither removed nor revoked. */
export function isLive(record: KeyRecord): record is LiveRecord {
  return record.state !== "removed" && record.state !== "revoked";
}

/** How the signing key ended that had a kid; `undefined` where there was none, or it still lives. */
export function endOf(records: readonly KeyRecord[], kid: string): EndState | undefined {
  const record = records.find((record) => record.use === "sig" && record.kid === kid);
  return record === undefined || isLive(record) ? undefined : record.state;
}

export function liveRecords(records: readonly KeyRecord[]): readonly LiveRecord[] {
  return records.filter(isLive);
}

/** The list after a change of its live records; the same list where nothing changes. */
export function mapLive(
  records: readonly KeyRecord[],
  change: (record: LiveRecord) => KeyRecord,
): readonly KeyRecord[] {
  const changed = records.map((record) => (isLive(record) ? change(record) : record));
  return changed.some((record, index) => record !== records[index]) ? changed : records;
}

/** A key whose private half is in an HSM or key service. */
export type ExternalKey = Pick<KeyRecord, "kid" | "thumbprint"> & { readonly uri: string };

/** The external keys among those that came to their end in these events: they may still be in their HSM or key service. */
export function endedExternalKeys(records: readonly KeyRecord[], events: readonly KeyEvent[]): ExternalKey[] {
  const ended = new Set(events.filter(({ type }) => type === "removed" || type === "revoked").map(({ kid }) => kid));
  return records.flatMap((record) => {
    const uri = uriOf(record);
    return ended.has(record.kid) && uri !== undefined ? [{ kid: record.kid, thumbprint: record.thumbprint, uri }] : [];
  });
}

/** The wrapped private half, where it is in the store. */
export function jweOf({ privateHalf }: Pick<LiveRecord, "privateHalf">): string | undefined {
  return "jwe" in privateHalf ? privateHalf.jwe : undefined;
}

/** Where the private half is, if it is in an HSM or key service. */
export function uriOf(record: Tombstone | Pick<LiveRecord, "privateHalf">): string | undefined {
  if (!("privateHalf" in record)) return record.uri;
  return "uri" in record.privateHalf ? record.privateHalf.uri : undefined;
}

/** The record of a kid. @throws StateError `ERR_KID_UNMANAGED` */
export function recordOf(records: readonly KeyRecord[], kid: string): KeyRecord {
  const record = records.find((record) => record.kid === kid);
  if (record !== undefined) return record;
  const known = records.length === 0 ? "it has no keys" : "the records of the manager have each kid";
  throw new StateError("ERR_KID_UNMANAGED", `no key of the store has the kid ${JSON.stringify(kid)}; ${known}`);
}

/** The keys of a change that were not there before. */
export function addedRecords(before: readonly KeyRecord[], after: readonly KeyRecord[]): LiveRecord[] {
  const known = new Set(before.map(({ kid }) => kid));
  return liveRecords(after).filter(({ kid }) => !known.has(kid));
}

/** The signing key that a change makes active; `undefined` where the active key stays. */
export function newlyActive(before: readonly KeyRecord[], after: readonly KeyRecord[]): LiveRecord | undefined {
  const next = activeKey(after, "sig");
  return next?.kid === activeKey(before, "sig")?.kid ? undefined : next;
}

/** Which time of a live record says when its state began. */
const stateTime = {
  announced: "announcedAt",
  active: "activatedAt",
  retiring: "retiredAt",
} as const satisfies Record<LiveState, keyof LiveRecord>;

/** When the state of a key began, in epoch milliseconds. */
export function stateSince(record: KeyRecord): number {
  return (isLive(record) ? record[stateTime[record.state]] : record.endedAt) ?? Number.NaN;
}

export function activeKey(records: readonly KeyRecord[], use: KeyUse): LiveRecord | undefined {
  return liveRecords(records).find((record) => record.use === use && record.state === "active");
}

/** There is at most one announced key of a use. */
export function announcedKey(records: readonly KeyRecord[], use: KeyUse): LiveRecord | undefined {
  return liveRecords(records).find((record) => record.use === use && record.state === "announced");
}

export function retiringKeys(records: readonly KeyRecord[], use: KeyUse): LiveRecord[] {
  return liveRecords(records).filter((record) => record.use === use && record.state === "retiring");
}

/**
 * The keys that are published, in order: the active one, the announced one, then, of signing keys, the retiring ones, newest first.
 */
export function publishedKeys(records: readonly KeyRecord[], use: KeyUse): LiveRecord[] {
  const retiring = retiringKeys(records, use).sort((a, b) => stateSince(b) - stateSince(a));
  return [activeKey(records, use), announcedKey(records, use), ...(use === "sig" ? retiring : [])].filter(
    (record) => record !== undefined,
  );
}

/** Whether the rotation mode is on: while any key is on its way in or out. Caches then keep a set for a short time. */
export function isRotating(records: readonly KeyRecord[]): boolean {
  return liveRecords(records).some(({ state }) => state === "announced" || state === "retiring");
}

/**
 * Refuses records that break a rule. The MAC of the store covers them, so such records are those of a fault of jwksd, or of another version.
 *
 * @throws StoreError `ERR_RECORDS_INVALID`
 */
export function checkRecords(records: readonly KeyRecord[]): void {
  for (const record of records) checkRecord(record);
  checkDistinct(records);
  for (const use of keyUses) {
    const inState = (state: LiveState): number =>
      liveRecords(records).filter((record) => record.use === use && record.state === state).length;
    const least = use === "sig" && records.length > 0 ? 1 : 0;
    const active = inState("active");
    if (active > 1 || active < least) throw invalid(`${active} keys of use "${use}" are active`);
    if (inState("announced") > 1) throw invalid(`more than one key of use "${use}" is announced`);
  }
}

/** The times that a live record may have, in epoch milliseconds, in the order of the life of its key. */
export const recordTimes = [
  "announcedAt",
  "publishedAt",
  "activatedAt",
  "retiredAt",
  "replacedAt",
] as const satisfies readonly (keyof LiveRecord)[];

/** A kid is never used twice, and neither is a key. */
function checkDistinct(records: readonly KeyRecord[]): void {
  const kids = new Set<string>();
  const keys = new Map<string, string>();
  for (const { kid, thumbprint } of records) {
    if (kids.has(kid)) throw invalid(`kid ${JSON.stringify(kid)} is on two records`);
    const other = keys.get(thumbprint);
    if (other !== undefined) throw invalid(`kid ${JSON.stringify(other)} and kid ${JSON.stringify(kid)} are one key`);
    kids.add(kid);
    keys.set(thumbprint, kid);
  }
}

function checkRecord(record: KeyRecord): void {
  const { kid, state } = record;
  if (isLive(record) && !Object.hasOwn(stateTime, state)) {
    throw invalid(`kid ${JSON.stringify(kid)} is in no known state`);
  }
  if (!isDate(stateSince(record))) {
    throw invalid(`kid ${JSON.stringify(kid)}: the time is missing at which it became ${state}`);
  }
  if (!isLive(record)) return;
  for (const name of recordTimes) {
    if (!isDate(record[name] ?? 0)) throw invalid(`kid ${JSON.stringify(kid)}: ${name} is no time`);
  }
}

function invalid(what: string): StoreError {
  return new StoreError("ERR_RECORDS_INVALID", `the key records are not used: ${what}`);
}
