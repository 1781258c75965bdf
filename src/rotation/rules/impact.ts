import type { KeyRecord } from "../store/store.ts";
import { rotatingEverywhereSince, rotatingSince } from "./mode-intervals.ts";
import { type RotationPolicy, cachedForSeconds, drainSeconds } from "./policy.ts";
import { activeKey, isRotating } from "./records.ts";
import { earliestEndOfWait } from "./waits.ts";
import { durationText, kidText, timeText } from "./format.ts";

/** For how long caches may trust a key that is no longer published. */
export interface Trust {
  /** Epoch milliseconds: the end for caches that keep to Cache-Control. */
  readonly until: number;
  /** The end for caches that keep a copy for longer than they were told, within `cacheSlackSeconds`. */
  readonly withSlackUntil: number;
  /** For how many seconds, and why. */
  readonly because: string;
}

/**
 * What the difference between two states of the records means for verifiers and relying parties, a sentence or two for each key.
 * No sentence for a key that is the same in both.
 *
 * @param now when the change is made, in epoch milliseconds
 */
export function impactOf(
  before: readonly KeyRecord[],
  after: readonly KeyRecord[],
  policy: RotationPolicy,
  now: number,
): string[] {
  const old = new Map(before.map((record) => [record.kid, record]));
  const changed = after.filter((record) => JSON.stringify(record) !== JSON.stringify(old.get(record.kid)));
  const told = changed.flatMap((record) => effectOf(record, old.get(record.kid), { before, after, policy, now }));
  return [...told, ...modeEffect(before, after, now)];
}

/** What forced steps and revocations of the past still do to verifiers. */
export function aftermath(records: readonly KeyRecord[], policy: RotationPolicy, now: number): string[] {
  return records.flatMap((record) => {
    if (isStillTrusted(record, records, policy, now)) {
      return [stillTrusted(record, trustAfterRevocation(records, record.endedAt ?? now, policy), policy)];
    }
    const isForced = record.unannounced === true && record.state === "active" && !isFirst(record, records);
    return isForced && record.use === "sig" && unknownUntil(record, policy) > now
      ? [refusedTokens(record, policy)]
      : [];
  });
}

/** Whether a key was revoked, and caches may not know of it yet. */
export function isStillTrusted(
  { state, endedAt }: KeyRecord,
  records: readonly KeyRecord[],
  policy: RotationPolicy,
  now: number,
): boolean {
  if (state !== "revoked" || endedAt === undefined) return false;
  // Most keys were revoked long ago. For them, the search is not needed.
  const longest = endedAt + (cachedForSeconds.long + policy.cacheSlackSeconds) * 1000;
  return longest > now && trustAfterRevocation(records, endedAt, policy).withSlackUntil > now;
}

/**
 * Until when caches may trust a revoked key: as long as they may keep an older set. That is the time of the long mode, unless the rotation
 * mode had been on for so long that every set of the long mode has expired.
 */
export function trustAfterRevocation(records: readonly KeyRecord[], revokedAt: number, policy: RotationPolicy): Trust {
  const isOn = rotatingSince(records, revokedAt) !== undefined;
  const since = rotatingEverywhereSince(records, revokedAt);
  const isShort = since !== undefined && revokedAt - since >= cachedForSeconds.long * 1000;
  const seconds = isShort ? cachedForSeconds.rotation : cachedForSeconds.long;
  // Rounded down, so that a time below the bound is not shown as the bound.
  const onMs = since === undefined ? 0 : revokedAt - since;
  const unitMs = onMs < 60_000 ? 1_000 : 60_000;
  const onForMs = Math.floor(onMs / unitMs) * unitMs;
  const onFor =
    since === undefined
      ? "had not reached every replica"
      : `had been on for ${isShort ? "" : "only "}${durationText(onForMs)}`;
  const mode = isOn ? onFor : "was off";
  const because = `${seconds} s, because the rotation mode ${mode}`;
  const until = revokedAt + seconds * 1000;
  return { until, withSlackUntil: until + policy.cacheSlackSeconds * 1000, because };
}

interface Context {
  readonly before: readonly KeyRecord[];
  readonly after: readonly KeyRecord[];
  readonly policy: RotationPolicy;
  readonly now: number;
}

function effectOf(record: KeyRecord, old: KeyRecord | undefined, context: Context): string | readonly string[] {
  const { policy, now } = context;
  const name = nameOf(record);
  if (old?.state === record.state) return effectOfNotes(record, old);
  switch (record.state) {
    case "announced":
      return record.use === "sig"
        ? `${name} is published now and signs from ${timeText(earliestEndOfWait(record, policy, now))} on; every cache knows it by then, so nobody is affected.`
        : `${name} is published now, after the active one, and takes its place at ${timeText(earliestEndOfWait(record, policy, now))}; nobody is affected.`;
    case "active":
      return activated(record, context);
    case "retiring":
      return retired(record, policy, now);
    case "removed":
      return removed(record, old, context);
    default:
      return revoked(record, old, context);
  }
}

/** The effect on a key that stays in its state. Notes of processes, such as the beginning of a wait, affect nobody and have no sentence. */
function effectOfNotes(record: KeyRecord, old: KeyRecord): readonly string[] {
  const { publishedAt = record.publishedAt, unusedAt = record.unusedAt } = old;
  if (publishedAt !== record.publishedAt || unusedAt !== record.unusedAt) {
    return [`${nameOf(record)}: its waiting time begins again; nobody is affected.`];
  }
  return JSON.stringify(record.privateHalf) === JSON.stringify(old.privateHalf)
    ? []
    : [`${nameOf(record)}: only its private half is kept in another way; nobody is affected.`];
}

function activated(record: KeyRecord, { before, policy, now }: Context): string {
  const name = nameOf(record);
  if (record.use === "enc") return `${name} is what relying parties encrypt to from now on; nobody is affected.`;
  if (isFirst(record, before)) {
    return `${name} signs from now on. It is the first signing key of this store. If another provider of this issuer has published it, nobody is affected. If that provider has published other keys only, verifiers refuse its tokens until their cached sets have expired.`;
  }
  if (unknownUntil(record, policy) <= now) {
    return `${name} signs from now on. It has been published since ${timeText(publishedSince(record))}, so every cache knows it, and nobody is affected.`;
  }
  return refusedTokens(record, policy);
}

function refusedTokens(record: KeyRecord, policy: RotationPolicy): string {
  const { announcedAt, activatedAt = announcedAt } = record;
  const since = publishedSince(record);
  const honest = timeText(since + cachedForSeconds.long * 1000);
  return (
    `${nameOf(record)} signs from ${timeText(activatedAt)} on, and is published only since ${timeText(since)}: verifiers that ` +
    "cached the set before that, and do not ask again on an unknown kid, refuse its tokens " +
    `until ${timeText(unknownUntil(record, policy))} (${cachedForSeconds.long} s in caches, until ${honest}, and ` +
    `cacheSlackSeconds ${policy.cacheSlackSeconds}). Verifiers that do ask again are not affected.`
  );
}

function retired(record: KeyRecord, policy: RotationPolicy, now: number): string {
  const name = nameOf(record);
  const end = timeText(earliestEndOfWait(record, policy, now));
  return record.use === "sig"
    ? `${name} signs no more, but for ${drainSeconds} s in requests that began with it; it stays published until ${end}, when its last token has expired, so nobody is affected.`
    : `${name} is no longer published; what is encrypted to it can be decrypted until ${end}, when no cache gives it away any more, so nobody is affected.`;
}

function removed(record: KeyRecord, old: KeyRecord | undefined, { policy, now }: Context): string {
  const name = nameOf(record);
  const needed = old === undefined ? undefined : neededUntil(old, now, policy);
  if (needed === undefined) return `${name} never signed anything; it is no longer published, and nobody is affected.`;
  if (needed <= now) return `${name} is gone; nothing that needs it can be valid any more, so nobody is affected.`;
  const until = timeText(needed);
  return record.use === "sig"
    ? `${name} is no longer published before its time: tokens that it signed${whenSigned(record)} and that have not expired fail at every verifier that fetches the set from now on, until ${until}, when the last of them has expired.`
    : `${name} is gone before its time: what is encrypted to it, and what relying parties with a cached set encrypt to it until ${until}, can no longer be decrypted.`;
}

function revoked(record: KeyRecord, old: KeyRecord | undefined, context: Context): string {
  const { after, policy, now } = context;
  const name = nameOf(record);
  const trust = trustAfterRevocation(after, record.endedAt ?? now, policy);
  if (record.use === "enc") {
    const none =
      activeKey(after, "enc") === undefined
        ? " No encryption key is left; jwksd keys announce --use enc makes one."
        : "";
    return old?.state === "retiring"
      ? `${name} is gone: what is encrypted to it can no longer be decrypted.${none}`
      : `${name} is gone: what is encrypted to it can no longer be decrypted, and relying parties that fetched it before may encrypt to it ${untilWhen(trust, policy)}${none}`;
  }
  const tokens =
    old?.state === "announced"
      ? "It has not signed anything yet."
      : "Every token that it signed fails at each verifier that has the new set.";
  return `${stillTrusted(record, trust, policy)} ${tokens}`;
}

function stillTrusted(record: KeyRecord, trust: Trust, policy: RotationPolicy): string {
  const who =
    record.use === "sig"
      ? "Caches that fetched it before may trust it"
      : "Relying parties that fetched it before may encrypt to it";
  return `${nameOf(record)} is revoked. ${who} ${untilWhen(trust, policy)}`;
}

function untilWhen({ until, withSlackUntil, because }: Trust, policy: RotationPolicy): string {
  const { cacheSlackSeconds } = policy;
  return (
    `until ${timeText(until)} (${because}). Caches that do not keep to the headers may until ${timeText(withSlackUntil)} ` +
    `(cacheSlackSeconds ${cacheSlackSeconds}), or longer. Each replica serves it until that replica follows.`
  );
}

/** The rotation mode protects the next change, so operators want to know when it begins. */
function modeEffect(before: readonly KeyRecord[], after: readonly KeyRecord[], now: number): string[] {
  const isOn = isRotating(after);
  if (isRotating(before) === isOn) return [];
  const { rotation, long } = cachedForSeconds;
  const [mode, rule] = isOn
    ? ["on", `keep the set for ${rotation} s`]
    : ["off", `may keep the set for ${long} s again`];
  return [`The rotation mode goes ${mode} at ${timeText(now)}: from then on caches ${rule}.`];
}

/** Until when tokens or encrypted data need a key that is to go; `undefined` if nothing ever needed it. */
function neededUntil(old: KeyRecord, now: number, policy: RotationPolicy): number | undefined {
  if (old.state === "retiring") return earliestEndOfWait(old, policy, now);
  if (old.state === "announced" && old.use === "sig") return undefined;
  // An encryption key that is published may have been encrypted to until now.
  return earliestEndOfWait({ ...old, state: "retiring", retiredAt: now }, policy, now);
}

/** Until when some cache may hold a set without the key, in epoch milliseconds. */
function unknownUntil(record: KeyRecord, policy: RotationPolicy): number {
  return publishedSince(record) + (cachedForSeconds.long + policy.cacheSlackSeconds) * 1000;
}

/** Since when every replica publishes an active key; for a key that was forced, since it became active. */
function publishedSince({ announcedAt, publishedAt, activatedAt = announcedAt }: KeyRecord): number {
  return publishedAt ?? activatedAt;
}

/** Whether this is the first key of its use, so that no cache can hold an older set. */
function isFirst(record: KeyRecord, records: readonly KeyRecord[]): boolean {
  return !records.some(
    ({ kid, use, announcedAt }) => use === record.use && kid !== record.kid && announcedAt < record.announcedAt,
  );
}

/** Until when a key signed; empty for a key that was imported to retire, because nobody knows. */
function whenSigned({ activatedAt, retiredAt }: KeyRecord): string {
  return retiredAt === undefined || activatedAt === retiredAt ? "" : ` until ${timeText(retiredAt)}`;
}

function nameOf({ kid, use }: KeyRecord): string {
  return `${use === "sig" ? "Signing" : "Encryption"} key "${kidText(kid)}"`;
}
