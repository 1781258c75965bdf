import { kidText, timeText } from "../../base/format.ts";
import { newKeyText, removedKeyText, replacedKeyText } from "../../doctor/verifiers/behavior-text.ts";
import {
  type KeyRecord,
  type LiveRecord,
  type Tombstone,
  activeKey,
  isDecommissioned,
  isLive,
  isRotating,
} from "../rules/key-records.ts";
import { type RotationPolicy, cachedForSeconds, maxAgeSeconds } from "../rules/policy.ts";
import { cachedSeconds } from "../rules/rotation-mode-intervals.ts";
import { earliestEndOfWait, longestStale } from "../rules/waits.ts";

interface Context {
  readonly before: readonly KeyRecord[];
  readonly after: readonly KeyRecord[];
  readonly policy: RotationPolicy;
  readonly now: number;
}

/**
 * Explains how a change to the records affects verifiers and relying parties. Each changed key gets a sentence or two.
 *
 * @param now time of the change, in epoch milliseconds
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
  const effects = changed.flatMap((record) => effectOf(record, old.get(record.kid), context) ?? []);
  return [...effects, ...modeEffect(context)];
}

/** Explains how earlier forced steps and revocations still affect verifiers. */
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

/**
 * Returns the latest time, in epoch milliseconds, at which caches that ignore Cache-Control may still contain a revoked
 * key; `-Infinity` for keys that are not revoked.
 */
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
  const name = keyName(record);
  const end = timeText(earliestEndOfWait(record, policy, now));
  switch (record.state) {
    case "announced":
      return record.use === "sig"
        ? `${name} is published now and starts signing at ${end}. Every cache will have it by then, so nothing breaks.`
        : `${name} is published now, listed after the active key, and replaces that key at ${end}; nothing breaks.`;
    case "active":
      return activated(record, was, context);
    default:
      return record.use === "sig"
        ? `${name} stops signing in each process as soon as that process reads this change, and everywhere within ${policy.maxStaleSeconds} s (maxStaleSeconds). The key stays published until ${end}, when its last token will have expired, so nothing breaks.`
        : `${name} is no longer published. Data encrypted to it can be decrypted until ${end}, when caches will no longer serve the key, so nothing breaks.`;
  }
}

/**
 * Explains a change to a key whose state stays the same. Returns nothing for bookkeeping, such as the start of a
 * waiting period, because it does not affect verifiers.
 */
function effectOfNotes(record: LiveRecord, old: LiveRecord): string | undefined {
  const { publishedAt = record.publishedAt, replacedAt = record.replacedAt } = old;
  if (publishedAt !== record.publishedAt || replacedAt !== record.replacedAt) {
    return `${keyName(record)}: its waiting period restarts; nothing breaks.`;
  }
  return JSON.stringify(record.privateHalf) === JSON.stringify(old.privateHalf)
    ? undefined
    : `${keyName(record)}: only the encryption of its private key changes; nothing breaks.`;
}

function activated(record: LiveRecord, was: LiveRecord | undefined, { after, policy, now }: Context): string {
  const name = keyName(record);
  if (record.use === "enc") return `${name} becomes the key to which relying parties encrypt; nothing breaks.`;
  const [isTheFirst, isBack] = [isFirst(record, after), was?.state === "retiring"];
  if (isTheFirst && !isBack) {
    return `${name} signs from now on. It is the first signing key in this store. If another provider for this issuer has published it, nothing breaks. If that provider has published only other keys, verifiers reject the key's tokens until their cached sets expire.`;
  }
  if (!isTheFirst && unknownUntil(record, policy) > now) return refusedTokens(record, policy);
  return `${name} signs ${isBack ? "again " : ""}from now on. It has been published since ${timeText(publishedSince(record))}, so every cache has it and nothing breaks.`;
}

function refusedTokens(record: LiveRecord, policy: RotationPolicy): string {
  const { maxStaleSeconds, cacheSlackSeconds } = policy;
  return (
    `${keyName(record)} starts signing at ${timeText(record.activatedAt ?? record.announcedAt)} and has been published only since ` +
    `${timeText(publishedSince(record))}. Until ${timeText(unknownUntil(record, policy))}, the key's tokens are rejected by verifiers that have an older set and do not ` +
    `refetch it when they see an unknown kid. A process that cannot read the store may publish the older set for another ` +
    `${maxStaleSeconds} s (maxStaleSeconds), and caches may keep it for ${cachedForSeconds.long} s more, plus ${cacheSlackSeconds} s ` +
    `(cacheSlackSeconds). ${newKeyText()}`
  );
}

function removed(record: Tombstone, old: LiveRecord | undefined, { policy, now }: Context): string {
  const name = keyName(record);
  const needed = old === undefined ? undefined : neededUntil(old, now, policy);
  if (needed === undefined) return `${name} never signed anything; it is no longer published, and nothing breaks.`;
  if (needed <= now) return `${name} is removed; nothing that needs it can still be valid, so nothing breaks.`;
  const until = timeText(needed);
  return record.use === "sig"
    ? `${name} is removed too early: unexpired tokens that it signed${whenSigned(old)} fail in every verifier that fetches the set from now on, until ${until}, when the last of these tokens will have expired.`
    : `${name} is removed too early: data encrypted to it, including data that relying parties with a cached set will encrypt to it until ${until}, can no longer be decrypted.`;
}

function revoked(record: Tombstone, old: LiveRecord | undefined, { before, after, policy, now }: Context): string {
  const onForSeconds = policy.maxStaleSeconds + cachedForSeconds.long;
  const cached = cachedSeconds(before, now, policy);
  const isLong = cached === cachedForSeconds.long;
  const because =
    `: a process that cannot read the store publishes the previous set for at most ${policy.maxStaleSeconds} s (maxStaleSeconds), and caches keep that ` +
    `set for another ${cached} s, because rotation mode has ${isLong ? "not " : ""}been on for at least ${onForSeconds} s`;
  const trusted = stillTrusted(record, policy, because);
  if (record.use === "sig") {
    return old?.state === "announced"
      ? `${trusted} It has not signed anything.`
      : `${trusted} Every token that it signed fails in verifiers that have the new set. ${old?.state === "active" && !isDecommissioned(after) ? replacedKeyText() : removedKeyText(isLong ? maxAgeSeconds.long : maxAgeSeconds.rotation)}`;
  }
  const isLast = activeKey(after, "enc") === undefined;
  const none = isLast ? " No encryption key is left; create one with jwksd keys announce --use enc." : "";
  return `${trusted} Data encrypted to it can no longer be decrypted.${none}`;
}

function stillTrusted(record: Tombstone, policy: RotationPolicy, because = ""): string {
  const { trustedUntil = record.endedAt, use } = record;
  const may = use === "sig" ? "Verifiers may trust it" : "Relying parties may encrypt to it";
  return (
    `${keyName(record)} is revoked. ${may} until ${timeText(trustedUntil)}${because}. Caches that ignore Cache-Control may keep it for ` +
    `another ${policy.cacheSlackSeconds} s (cacheSlackSeconds), until ${timeText(goneFromCachesAt(record, policy))}, or longer.`
  );
}

/**
 * Explains a change in rotation mode. Operators want to know when it is turned on, because it protects the next step.
 */
function modeEffect({ before, after, now }: Context): string[] {
  const isOn = isRotating(after);
  if (isRotating(before) === isOn) return [];
  const { rotation, long } = cachedForSeconds;
  const [mode, rule] = isOn
    ? ["on", `keep the set for ${rotation} s`]
    : ["off", `may again keep the set for ${long} s`];
  return [`Rotation mode turns ${mode} at ${timeText(now)}: from then on, caches ${rule}.`];
}

/**
 * Returns the latest time at which a key that is being removed may still be needed for verifying tokens or decrypting
 * data, or `undefined` if the key was never used.
 */
function neededUntil(old: LiveRecord, now: number, policy: RotationPolicy): number | undefined {
  if (old.state === "announced" && old.use === "sig") return undefined;
  // Until now, relying parties may have encrypted to a published encryption key.
  return earliestEndOfWait({ ...old, state: "retiring" }, policy, now);
}

/** Returns the latest time, in epoch milliseconds, at which a cache may still contain a set without the key. */
function unknownUntil(record: LiveRecord, { maxStaleSeconds, cacheSlackSeconds }: RotationPolicy): number {
  return publishedSince(record) + (maxStaleSeconds + cachedForSeconds.long + cacheSlackSeconds) * 1000;
}

/**
 * Returns the time at which processes began to publish an active key. If the activation was forced, this is the time of
 * the activation.
 */
function publishedSince({ announcedAt, publishedAt, activatedAt = announcedAt }: LiveRecord): number {
  return publishedAt ?? activatedAt;
}

/** Reports whether this is the first key for its use, in which case no cache can have an older set. */
function isFirst({ kid, use }: LiveRecord, records: readonly KeyRecord[]): boolean {
  return records.find((record) => record.use === use)?.kid === kid;
}

/**
 * Describes when a key stopped signing. Returns an empty string for a key that was imported as retiring, because the
 * time is unknown.
 */
function whenSigned({ activatedAt, retiredAt }: Partial<LiveRecord> = {}): string {
  return retiredAt === undefined || activatedAt === retiredAt ? "" : ` until ${timeText(retiredAt)}`;
}

function keyName({ kid, use }: KeyRecord): string {
  return `${use === "sig" ? "Signing" : "Encryption"} key "${kidText(kid)}"`;
}
