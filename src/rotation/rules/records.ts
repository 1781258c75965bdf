import { StateError, StoreError } from "../../base/errors.ts";
import { keyIdentity } from "../../keys/jwk/public.ts";
import type { KeyEvent, KeyRecord, KeyState, KeyUse } from "../store/store.ts";

export const keyUses = ["sig", "enc"] as const satisfies readonly KeyUse[];

/** The algorithm of the first key of each use. Most relying parties can encrypt to RSA. */
const firstAlg: Readonly<Record<KeyUse, string>> = { sig: "ES256", enc: "RSA-OAEP-256" };

/** The algorithm of the next key of a use: that of the active one. */
export function nextAlg(records: readonly KeyRecord[], use: KeyUse): string {
  return activeKey(records, use)?.alg ?? firstAlg[use];
}

/** Neither removed nor revoked. */
export function isLive({ state }: KeyRecord): boolean {
  return state !== "removed" && state !== "revoked";
}

/** How the signing key ended that had a kid; `undefined` where there was none, or it still lives. */
export function endOf(records: readonly KeyRecord[], kid: string): "removed" | "revoked" | undefined {
  const state = records.find((record) => record.use === "sig" && record.kid === kid)?.state;
  return state === "removed" || state === "revoked" ? state : undefined;
}

export function liveRecords(records: readonly KeyRecord[]): readonly KeyRecord[] {
  return records.filter(isLive);
}

/** The list after a change of its live records; the same list where nothing changes. */
export function mapLive(records: readonly KeyRecord[], change: (record: KeyRecord) => KeyRecord): readonly KeyRecord[] {
  const changed = records.map((record) => (isLive(record) ? change(record) : record));
  return changed.some((record, index) => record !== records[index]) ? changed : records;
}

/** A key whose private half is in an HSM or key service. */
export type ExternalKey = Pick<KeyRecord, "kid" | "publicJwk"> & { readonly uri: string };

/** The key of a record, if it is in an HSM or key service. */
export function externalOf(record: KeyRecord): ExternalKey | undefined {
  const { kid, publicJwk } = record;
  const uri = uriOf(record);
  return uri === undefined ? undefined : { kid, publicJwk, uri };
}

/** The external keys among those that came to their end in these events: they may still be in their HSM or key service. */
export function endedExternalKeys(records: readonly KeyRecord[], events: readonly KeyEvent[]): ExternalKey[] {
  const ended = new Set(events.filter(({ type }) => type === "removed" || type === "revoked").map(({ kid }) => kid));
  return records.filter(({ kid }) => ended.has(kid)).flatMap((record) => externalOf(record) ?? []);
}

/** The wrapped private half, where it is in the store. */
export function jweOf({ privateHalf }: Pick<KeyRecord, "privateHalf">): string | undefined {
  return privateHalf !== undefined && "jwe" in privateHalf ? privateHalf.jwe : undefined;
}

/** Where the private half is, if it is in an HSM or key service. */
export function uriOf({ privateHalf }: Pick<KeyRecord, "privateHalf">): string | undefined {
  return privateHalf !== undefined && "uri" in privateHalf ? privateHalf.uri : undefined;
}

/** The record of a kid. @throws StateError `ERR_KID_UNMANAGED` */
export function recordOf(records: readonly KeyRecord[], kid: string): KeyRecord {
  const record = records.find((record) => record.kid === kid);
  if (record !== undefined) return record;
  const known = records.length === 0 ? "it has no keys" : "the records of the manager have each kid";
  throw new StateError("ERR_KID_UNMANAGED", `no key of the store has the kid ${JSON.stringify(kid)}; ${known}`);
}

/** The records of a change that were not there before. */
export function addedRecords(before: readonly KeyRecord[], after: readonly KeyRecord[]): KeyRecord[] {
  const known = new Set(before.map(({ kid }) => kid));
  return after.filter(({ kid }) => !known.has(kid));
}

/** The signing key that a change makes active; `undefined` where the active key stays. */
export function newlyActive(before: readonly KeyRecord[], after: readonly KeyRecord[]): KeyRecord | undefined {
  const next = activeKey(after, "sig");
  return next?.kid === activeKey(before, "sig")?.kid ? undefined : next;
}

/** Which time of a record says when its state began. */
export const stateTime = {
  announced: "announcedAt",
  active: "activatedAt",
  retiring: "retiredAt",
  removed: "endedAt",
  revoked: "endedAt",
} as const satisfies Record<KeyState, keyof KeyRecord>;

/** When the state of a key began, in epoch milliseconds. */
export function stateSince(record: KeyRecord): number {
  return record[stateTime[record.state]] ?? Number.NaN;
}

export function activeKey(records: readonly KeyRecord[], use: KeyUse): KeyRecord | undefined {
  return liveRecords(records).find((record) => record.use === use && record.state === "active");
}

/** There is at most one announced key of a use. */
export function announcedKey(records: readonly KeyRecord[], use: KeyUse): KeyRecord | undefined {
  return liveRecords(records).find((record) => record.use === use && record.state === "announced");
}

export function retiringKeys(records: readonly KeyRecord[], use: KeyUse): KeyRecord[] {
  return liveRecords(records).filter((record) => record.use === use && record.state === "retiring");
}

/**
 * The keys that are published, in order: the active one, the announced one, then, of signing keys, the retiring ones, newest first.
 */
export function publishedKeys(records: readonly KeyRecord[], use: KeyUse): KeyRecord[] {
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
 * Refuses records that break a rule, whoever wrote them.
 *
 * @throws StoreError `ERR_RECORDS_INVALID`
 */
export function checkRecords(records: readonly KeyRecord[]): void {
  for (const record of records) checkRecord(record);
  checkDistinct(records);
  for (const use of keyUses) {
    const inState = (state: KeyState) =>
      liveRecords(records).filter((record) => record.use === use && record.state === state).length;
    const least = use === "sig" && records.length > 0 ? 1 : 0;
    const active = inState("active");
    if (active > 1 || active < least) throw invalid(`${active} keys of use "${use}" are active`);
    if (inState("announced") > 1) throw invalid(`more than one key of use "${use}" is announced`);
  }
}

/**
 * Refuses a key that signs without having been announced: every replica must have published it for as long as was agreed, unless an
 * operator forced it.
 *
 * @throws StoreError `ERR_RECORDS_INVALID`
 */
export function checkAnnounced(records: readonly KeyRecord[]): void {
  const active = activeKey(records, "sig");
  if (active === undefined || active.unannounced === true) return;
  const { kid, announcedAt, publishedAt = announcedAt, activatedAt = 0, announceForSeconds = 0 } = active;
  const publishedSeconds = (activatedAt - publishedAt) / 1000;
  if (publishedSeconds >= announceForSeconds) return;
  throw invalid(
    `kid ${JSON.stringify(kid)} is active, and had been published for ${publishedSeconds} s, where ${announceForSeconds} s were agreed; restore the newest store`,
  );
}

/** The times that a record may have, in epoch milliseconds, in the order of the life of its key. */
export const recordTimes = [
  "announcedAt",
  "publishedAt",
  "activatedAt",
  "retiredAt",
  "unusedAt",
  "endedAt",
] as const satisfies readonly (keyof KeyRecord)[];

/** A kid is never used twice, and neither is a key. */
function checkDistinct(records: readonly KeyRecord[]): void {
  const kids = new Set<string>();
  const keys = new Map<string, string>();
  for (const { kid, publicJwk } of records) {
    if (kids.has(kid)) throw invalid(`kid ${JSON.stringify(kid)} is on two records`);
    const other = keys.get(keyIdentity(publicJwk));
    if (other !== undefined) throw invalid(`kid ${JSON.stringify(other)} and kid ${JSON.stringify(kid)} are one key`);
    kids.add(kid);
    keys.set(keyIdentity(publicJwk), kid);
  }
}

function checkRecord(record: KeyRecord): void {
  const { kid, state, announcedAt, publicJwk, privateHalf } = record;
  if (!Object.hasOwn(stateTime, state)) throw invalid(`kid ${JSON.stringify(kid)} is in no known state`);
  if (!isDate(announcedAt) || !isDate(stateSince(record))) {
    throw invalid(`kid ${JSON.stringify(kid)}: the time is missing at which it became ${state}`);
  }
  for (const name of recordTimes) {
    if (!isDate(record[name] ?? 0)) throw invalid(`kid ${JSON.stringify(kid)}: ${name} is no time`);
  }
  for (const name of ["announceForSeconds", "retireForSeconds"] as const) {
    if (!isDate((record[name] ?? 0) * 1000)) throw invalid(`kid ${JSON.stringify(kid)}: ${name} is no duration`);
  }
  if (typeof publicJwk !== "object" || publicJwk === null)
    throw invalid(`kid ${JSON.stringify(kid)} has no public key`);
  if (isLive(record) && privateHalf === undefined) throw invalid(`kid ${JSON.stringify(kid)} has no private half`);
}

/** Whether a time can be written as a date. */
function isDate(epochMs: unknown): boolean {
  return typeof epochMs === "number" && Math.abs(epochMs) <= 8.64e15;
}

function invalid(what: string): StoreError {
  return new StoreError("ERR_RECORDS_INVALID", `the key records are not used: ${what}`);
}
