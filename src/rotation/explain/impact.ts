import { newKeyText, removedKeyText, replacedKeyText } from "../../doctor/verifiers/behavior-text.ts";
import { cachedSeconds } from "../rules/mode-intervals.ts";
import { type RotationPolicy, cachedForSeconds, maxAgeSeconds } from "../rules/policy.ts";
import { type KeyRecord, type LiveRecord, type Tombstone, activeKey, isLive, isRotating } from "../rules/records.ts";
import { earliestEndOfWait, longestStale } from "../rules/waits.ts";
import { kidText, timeText } from "../../base/format.ts";

interface Context {
  readonly before: readonly KeyRecord[];
  readonly after: readonly KeyRecord[];
  readonly policy: RotationPolicy;
  readonly now: number;
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
  const context = { before, after, policy: longestStale(before, policy), now };
  const old = new Map(before.map((record) => [record.kid, record]));
  const changed = after.filter((record) => JSON.stringify(record) !== JSON.stringify(old.get(record.kid)));
  const told = changed.flatMap((record) => effectOf(record, old.get(record.kid), context) ?? []);
  return [...told, ...modeEffect(context)];
}

/** What forced steps and revocations of the past still do to verifiers. */
export function aftermath(records: readonly KeyRecord[], given: RotationPolicy, now: number): string[] {
  const policy = longestStale(records, given);
  return records.flatMap((record) => {
    if (!isLive(record)) return goneFromCachesAt(record, policy) > now ? [stillTrusted(record, policy)] : [];
    const isForced = record.unannounced === true && record.state === "active" && !isFirst(record, records);
    return isForced && record.use === "sig" && unknownUntil(record, policy) > now
      ? [refusedTokens(record, policy)]
      : [];
  });
}

/** Until when caches that keep a set for longer than they were told may hold a revoked key, in epoch milliseconds; the past for all others. */
export function goneFromCachesAt(record: KeyRecord, { cacheSlackSeconds }: RotationPolicy): number {
  const { trustedUntil = -Infinity } = isLive(record) ? {} : record;
  return trustedUntil + cacheSlackSeconds * 1000;
}

function effectOf(record: KeyRecord, old: KeyRecord | undefined, context: Context): string | undefined {
  const { policy, now } = context;
  const was = old !== undefined && isLive(old) ? old : undefined;
  if (!isLive(record))
    return record.state === "revoked" ? revoked(record, was, context) : removed(record, was, context);
  if (was?.state === record.state) return effectOfNotes(record, was);
  const name = nameOf(record);
  const end = timeText(earliestEndOfWait(record, policy, now));
  switch (record.state) {
    case "announced":
      return record.use === "sig"
        ? `${name} is published now and signs from ${end} on; every cache knows it by then, so nobody is affected.`
        : `${name} is published now, after the active one, and takes its place at ${end}; nobody is affected.`;
    case "active":
      return activated(record, context);
    default:
      return record.use === "sig"
        ? `${name} signs no more in a process that has read this, and in none after maxStaleSeconds ${policy.maxStaleSeconds}; it stays published until ${end}, when its last token has expired, so nobody is affected.`
        : `${name} is no longer published; what is encrypted to it can be decrypted until ${end}, when no cache gives it away any more, so nobody is affected.`;
  }
}

/** The effect on a key that stays in its state. Notes of processes, such as the beginning of a wait, affect nobody and have no sentence. */
function effectOfNotes(record: LiveRecord, old: LiveRecord): string | undefined {
  const { publishedAt = record.publishedAt, replacedAt = record.replacedAt } = old;
  if (publishedAt !== record.publishedAt || replacedAt !== record.replacedAt) {
    return `${nameOf(record)}: its waiting time begins again; nobody is affected.`;
  }
  return JSON.stringify(record.privateHalf) === JSON.stringify(old.privateHalf)
    ? undefined
    : `${nameOf(record)}: only its private half is kept in another way; nobody is affected.`;
}

function activated(record: LiveRecord, { after, policy, now }: Context): string {
  const name = nameOf(record);
  if (record.use === "enc") return `${name} is what relying parties encrypt to from now on; nobody is affected.`;
  if (isFirst(record, after)) {
    return `${name} signs from now on. It is the first signing key of this store. If another provider of this issuer has published it, nobody is affected. If that provider has published other keys only, verifiers refuse its tokens until their cached sets have expired.`;
  }
  if (unknownUntil(record, policy) > now) return refusedTokens(record, policy);
  return `${name} signs from now on. It has been published since ${timeText(publishedSince(record))}, so every cache knows it, and nobody is affected.`;
}

function refusedTokens(record: LiveRecord, policy: RotationPolicy): string {
  const { maxStaleSeconds, cacheSlackSeconds } = policy;
  return (
    `${nameOf(record)} signs from ${timeText(record.activatedAt ?? record.announcedAt)} on, and is published only since ` +
    `${timeText(publishedSince(record))}: verifiers that have an older set, and do not ask again on an unknown kid, refuse its tokens ` +
    `until ${timeText(unknownUntil(record, policy))} (a process that cannot read publishes that set for maxStaleSeconds ` +
    `${maxStaleSeconds}, caches keep it for ${cachedForSeconds.long} s more, and cacheSlackSeconds ${cacheSlackSeconds}). ${newKeyText()}`
  );
}

function removed(record: Tombstone, old: LiveRecord | undefined, { policy, now }: Context): string {
  const name = nameOf(record);
  const needed = old === undefined ? undefined : neededUntil(old, now, policy);
  if (needed === undefined) return `${name} never signed anything; it is no longer published, and nobody is affected.`;
  if (needed <= now) return `${name} is gone; nothing that needs it can be valid any more, so nobody is affected.`;
  const until = timeText(needed);
  return record.use === "sig"
    ? `${name} is no longer published before its time: tokens that it signed${whenSigned(old)} and that have not expired fail at every verifier that fetches the set from now on, until ${until}, when the last of them has expired.`
    : `${name} is gone before its time: what is encrypted to it, and what relying parties with a cached set encrypt to it until ${until}, can no longer be decrypted.`;
}

function revoked(record: Tombstone, old: LiveRecord | undefined, { before, after, policy, now }: Context): string {
  const onForSeconds = policy.maxStaleSeconds + cachedForSeconds.long;
  const cached = cachedSeconds(before, now, policy);
  const isLong = cached === cachedForSeconds.long;
  const because =
    `: a process that cannot read publishes it for maxStaleSeconds ${policy.maxStaleSeconds} at most, and caches keep that set for ` +
    `${cached} s more, as the rotation mode has ${isLong ? "not " : ""}been on for ${onForSeconds} s`;
  const trusted = stillTrusted(record, policy, because);
  if (record.use === "sig") {
    return old?.state === "announced"
      ? `${trusted} It has not signed anything yet.`
      : `${trusted} Every token that it signed fails at each verifier that has the new set. ${old?.state === "active" ? replacedKeyText() : removedKeyText(isLong ? maxAgeSeconds.long : maxAgeSeconds.rotation)}`;
  }
  const isLast = activeKey(after, "enc") === undefined;
  const none = isLast ? " No encryption key is left; jwksd keys announce --use enc makes one." : "";
  return `${trusted} What is encrypted to it can no longer be decrypted.${none}`;
}

function stillTrusted(record: Tombstone, policy: RotationPolicy, because = ""): string {
  const { trustedUntil = record.endedAt, use } = record;
  const may = use === "sig" ? "Caches may trust it" : "Relying parties may encrypt to it";
  return (
    `${nameOf(record)} is revoked. ${may} until ${timeText(trustedUntil)}${because}. Caches that ignore Cache-Control may hold it until ` +
    `${timeText(goneFromCachesAt(record, policy))} (cacheSlackSeconds ${policy.cacheSlackSeconds}), or longer.`
  );
}

/** The rotation mode protects the next change, so operators want to know when it begins. */
function modeEffect({ before, after, now }: Context): string[] {
  const isOn = isRotating(after);
  if (isRotating(before) === isOn) return [];
  const { rotation, long } = cachedForSeconds;
  const [mode, rule] = isOn
    ? ["on", `keep the set for ${rotation} s`]
    : ["off", `may keep the set for ${long} s again`];
  return [`The rotation mode goes ${mode} at ${timeText(now)}: from then on caches ${rule}.`];
}

/** Until when tokens or encrypted data need a key that is to go; `undefined` if nothing ever needed it. */
function neededUntil(old: LiveRecord, now: number, policy: RotationPolicy): number | undefined {
  if (old.state === "announced" && old.use === "sig") return undefined;
  // An encryption key that is published may have been encrypted to until now.
  return earliestEndOfWait({ ...old, state: "retiring" }, policy, now);
}

/** Until when some cache may hold a set without the key, in epoch milliseconds. */
function unknownUntil(record: LiveRecord, { maxStaleSeconds, cacheSlackSeconds }: RotationPolicy): number {
  return publishedSince(record) + (maxStaleSeconds + cachedForSeconds.long + cacheSlackSeconds) * 1000;
}

/** Since when processes publish an active key; for a key that was forced, since it became active. */
function publishedSince({ announcedAt, publishedAt, activatedAt = announcedAt }: LiveRecord): number {
  return publishedAt ?? activatedAt;
}

/** Whether this is the first key of its use, so that no cache can hold an older set. */
function isFirst({ kid, use }: LiveRecord, records: readonly KeyRecord[]): boolean {
  return records.find((record) => record.use === use)?.kid === kid;
}

/** Until when a key signed; empty for a key that was imported to retire, because nobody knows. */
function whenSigned({ activatedAt, retiredAt }: Partial<LiveRecord> = {}): string {
  return retiredAt === undefined || activatedAt === retiredAt ? "" : ` until ${timeText(retiredAt)}`;
}

function nameOf({ kid, use }: KeyRecord): string {
  return `${use === "sig" ? "Signing" : "Encryption"} key "${kidText(kid)}"`;
}
