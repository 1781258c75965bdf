import { RotationError, invalidOption } from "../../base/errors.ts";
import { timeText } from "../../base/format.ts";
import { type At, type KeyChange, activate as activateKey, end, replace, restartWaits } from "./advance.ts";
import { decommissionIssuer, checkNotDecommissioned } from "./decommission.ts";
import {
  type KeyRecord,
  type KeyUse,
  type LiveRecord,
  activeKey,
  announcedKey,
  checkRecords,
  isDecommissioned,
  isLive,
  keyUses,
  mapLive,
  publishedKeys,
  recordOf,
} from "./key-records.ts";
import { type RotationPolicyOptions, announceForMs, knownOf, policyNames, rotationPolicy } from "./policy.ts";
import { earliestEndOfWait, endOfWait } from "./waits.ts";

/** The key to roll back to, and the rollback's options. */
export interface RollBack {
  readonly kid?: string | undefined;
  readonly withdraw?: boolean | undefined;
  readonly now?: boolean | undefined;
}

/** A key that does not have a record yet. */
export type NewKey = Pick<LiveRecord, "kid" | "use" | "alg" | "thumbprint" | "publicJwk" | "privateHalf">;

/**
 * An operator's command. `force` takes a step even if it makes valid tokens fail.
 *
 * - `announce`: publishes a key, which becomes active after its propagation period
 * - `activate`: makes an announced key active and retires the key that is currently active
 * - `retire`: retires the active key; the announced key becomes active
 * - `remove`: removes a retiring or announced key permanently. An announced encryption key retires instead, because a
 *   client may have encrypted to it
 * - `revoke`: removes a key permanently and immediately; if it was active, the announced key or `replacement` takes its
 *   place
 * - `rotate`: announces `key`; with `now`, the announced key (or `key` if no key is announced) starts signing
 *   immediately
 * - `rollBack`: makes a retiring signing key active again: `kid` or, if it is missing, the key that signed most
 *   recently. With `withdraw`, removes an announced key first. With `now`, takes the step even if caches do not have
 *   the key yet
 * - `decommission`: retires all keys, and nothing ever replaces them; with `now`, revokes all keys
 * - `import`: adopts a key that was published and used elsewhere
 * - `policy`: changes how keys rotate from now on. For announced and retiring keys, the longest waiting period under
 *   any policy so far applies
 */
export type Command =
  | { readonly type: "announce"; readonly key: NewKey }
  | { readonly type: "activate" | "retire" | "remove"; readonly kid: string; readonly force?: boolean | undefined }
  | { readonly type: "revoke"; readonly kid: string; readonly replacement?: NewKey | undefined }
  | {
      readonly type: "rotate";
      readonly use: KeyUse;
      readonly key?: NewKey | undefined;
      readonly now?: boolean | undefined;
    }
  | ({ readonly type: "rollBack" } & RollBack)
  | { readonly type: "decommission"; readonly now?: boolean | undefined }
  | {
      readonly type: "import";
      readonly key: NewKey;
      readonly state: "announced" | "active" | "retiring";
      readonly force?: boolean | undefined;
    }
  | { readonly type: "policy"; readonly policy: RotationPolicyOptions };

/**
 * Executes a command. If the command is not allowed, throws and changes nothing.
 *
 * @throws ConfigError `ERR_POLICY_INVALID`
 * @throws RotationError `ERR_KID_USED`, `ERR_KID_UNMANAGED`, `ERR_TRANSITION`, `ERR_TOO_EARLY`,
 * `ERR_ISSUER_DECOMMISSIONED` (`allowedAt` is the time from which the command is allowed; missing while clocks differ,
 * or while a decommissioned issuer still has keys)
 */
export function applyCommand(records: readonly KeyRecord[], command: Command, at: At): KeyChange {
  const before: KeyChange = { records, events: [] };
  // As with planned steps, a waiting period that was started by a wrong clock is restarted, unless this process's clock
  // might be the wrong one.
  const change = apply(at.areClocksOff === true ? before : restartWaits(before, at), command, at);
  checkRecords(change.records, command.type === "decommission" || isDecommissioned(records));
  return change;
}

/** Commands that cause a key to sign, immediately or later. */
const startingTypes: ReadonlySet<Command["type"]> = new Set(["announce", "rotate", "import", "rollBack"]);

function apply(change: KeyChange, command: Command, at: At): KeyChange {
  if (startingTypes.has(command.type)) checkNotDecommissioned(change.records, at);
  switch (command.type) {
    case "announce":
      return announce(change, command.key, at.now, "an operator announced it");
    case "activate":
      return activate(change, recordOf(change.records, command.kid), command.force === true, at);
    case "retire":
      return retire(change, recordOf(change.records, command.kid), command.force === true, at);
    case "remove":
      return remove(change, recordOf(change.records, command.kid), command.force === true, at);
    case "revoke":
      return revoke(change, recordOf(change.records, command.kid), command.replacement, at);
    case "rotate":
      return rotate(change, command, at);
    case "decommission":
      return decommissionIssuer(change, command.now === true, at);
    case "rollBack":
      return rollBack(change, command, at);
    case "import":
      return importKey(change, command, at);
    case "policy":
      return changePolicy(change, command.policy, at);
    default:
      throw invalidOption(`there is no command ${JSON.stringify((command as Command).type)}`);
  }
}

/**
 * Publishes a new key. If it is the first key for its use, it becomes active immediately, because there is no other
 * key.
 */
export function announce(change: KeyChange, key: NewKey, now: number, reason: string): KeyChange {
  checkNew(change, key);
  const announced = announcedKey(change.records, key.use);
  if (announced !== undefined) {
    throw refused(
      announced,
      "is already announced, and only one key can be announced at a time; wait until it is active, activate it now (rotate with the now option, or jwksd rotate --now --yes), or remove it",
    );
  }
  const record = announcedRecord(key, now);
  const added = add(change, record, now, reason);
  const isFirst = activeKey(change.records, key.use) === undefined;
  return isFirst ? unannounced(added, record, now, "it is the first key") : added;
}

function activate(change: KeyChange, key: KeyRecord, force: boolean, at: At): KeyChange {
  if (!isLive(key) || key.state !== "announced")
    throw refused(key, `is ${key.state}; only an announced key can become active`);
  const { policy, now } = at;
  if (!force && at.areClocksOff === true) throw uncertain(at);
  if (now >= earliestEndOfWait(key, policy, now)) return activateKey(change, key, now, "an operator activated it");
  if (!force) {
    throw tooEarly(key, at, {
      behind: "must not sign yet: its propagation period has not begun",
      waits:
        "must not sign before its propagation period ends: caches do not have it yet, and verifiers that do not refetch would reject its tokens",
    });
  }
  return unannounced(change, key, now, "an operator forced its activation before its propagation period ended");
}

function retire(change: KeyChange, key: KeyRecord, force: boolean, at: At): KeyChange {
  if (!isLive(key) || key.state !== "active") throw refused(key, `is ${key.state}; only the active key can retire`);
  const next = announcedKey(change.records, key.use);
  if (next === undefined)
    throw refused(key, "cannot retire before another key is announced; run jwksd rotate to announce one");
  return activate(change, next, force, at);
}

function remove(change: KeyChange, key: KeyRecord, force: boolean, at: At): KeyChange {
  const { policy, now } = at;
  if (isLive(key) && key.state === "announced" && (key.use === "sig" || force))
    return end(change, key.kid, "removed", at, "an operator withdrew it before it was in use");
  if (isLive(key) && key.state === "announced") {
    const withdrawn = { ...key, state: "retiring" as const, retiredAt: now };
    return replace(change, withdrawn, now, "retired", "an operator withdrew it; a client may have encrypted to it");
  }
  if (key.state !== "retiring") throw refused(key, `is ${key.state}; only a retiring or announced key can be removed`);
  if (!force && at.areClocksOff === true) throw uncertain(at);
  if (now >= earliestEndOfWait(key, policy, now)) return end(change, key.kid, "removed", at, "an operator removed it");
  if (!force) {
    throw tooEarly(key, at, {
      behind: "must not be removed yet: its retirement period has not begun",
      waits: "must not be removed yet: tokens that it signed, or that were encrypted to it, are still in use",
    });
  }
  return end(change, key.kid, "removed", at, "an operator forced its removal while it was still needed");
}

function revoke(change: KeyChange, key: KeyRecord, replacement: NewKey | undefined, at: At): KeyChange {
  if (!isLive(key)) throw refused(key, `is already ${key.state}`);
  return withNoteOf(key, revokeLive(change, key, replacement, at));
}

/**
 * Copies the longest `maxStaleSeconds` recorded for the revoked key to the remaining keys. A process that cannot read
 * the store may still follow any policy that applied during the revoked key's life.
 */
function withNoteOf({ maxStaleSeconds = 0 }: LiveRecord, change: KeyChange): KeyChange {
  const noted = (record: LiveRecord): LiveRecord =>
    record.state !== "active" || (record.maxStaleSeconds ?? 0) >= maxStaleSeconds
      ? record
      : { ...record, maxStaleSeconds };
  return { ...change, records: mapLive(change.records, noted) };
}

function revokeLive(change: KeyChange, key: LiveRecord, replacement: NewKey | undefined, at: At): KeyChange {
  const reason = "an operator revoked it";
  if (key.state !== "active") return end(change, key.kid, "revoked", at, reason);
  const replaced = replaceActive(change, key.use, replacement, at);
  if (replaced !== undefined) return end(replaced, key.kid, "revoked", at, reason);
  if (key.use === "enc") return end(change, key.kid, "revoked", at, reason);
  throw refused(key, "is the active key, and no other key is announced; a replacement is needed");
}

function rotate(change: KeyChange, { use, key, now }: Extract<Command, { type: "rotate" }>, at: At): KeyChange {
  if (now !== true) {
    if (key === undefined) throw new RotationError("ERR_TRANSITION", "a planned rotation needs a new key to announce");
    checkNew(change, key, use);
    return announce(change, key, at.now, "an operator began a rotation");
  }
  const replaced = replaceActive(change, use, key, at);
  if (replaced !== undefined) return replaced;
  throw new RotationError("ERR_TRANSITION", `no key with use "${use}" is announced; pass a new key`);
}

/**
 * Activates a key immediately: the announced key or, if there is none, a new key. Returns `undefined` if there is
 * neither.
 */
function replaceActive(change: KeyChange, use: KeyUse, key: NewKey | undefined, at: At): KeyChange | undefined {
  const announced = announcedKey(change.records, use);
  if (announced !== undefined) return activate(change, announced, true, at);
  if (key === undefined) return undefined;
  checkNew(change, key, use);
  const record = announcedRecord(key, at.now);
  const added = add(change, record, at.now, "it is needed immediately");
  return unannounced(added, record, at.now, "an operator made it active immediately");
}

function rollBack(change: KeyChange, { kid, withdraw = false, now = false }: RollBack, at: At): KeyChange {
  const key = kid === undefined ? lastSigner(change.records) : recordOf(change.records, kid);
  if (key === undefined) {
    throw new RotationError(
      "ERR_TRANSITION",
      "there is no earlier key to roll back to: no retiring key has signed anything; announce a new key (jwksd rotate)",
    );
  }
  if (key.use !== "sig") throw refused(key, "is an encryption key; only signing keys can be rolled back");
  if (key.state !== "retiring") throw refused(key, `is ${key.state}; only a retiring key can become active again`);
  if (!now) checkPublished(change.records, key, at);
  const announced = announcedKey(change.records, "sig");
  if (announced !== undefined && !withdraw) {
    throw refused(
      announced,
      "is announced and would soon replace the earlier key; remove the announced key in the same step (with the withdraw option, or jwksd rotate --back --withdraw)",
    );
  }
  const free = announced === undefined ? change : remove(change, announced, false, at);
  return activateKey(free, key, at.now, "an operator rolled back to it");
}

/**
 * Returns the retiring key that signed most recently. Ignores keys that were imported as retiring, because they have
 * never signed here.
 */
function lastSigner(records: readonly KeyRecord[]): LiveRecord | undefined {
  return publishedKeys(records, "sig").find(
    ({ state, activatedAt, retiredAt }) => state === "retiring" && activatedAt !== retiredAt,
  );
}

/**
 * Rejects a retiring key that caches might not have, because it recently became active without being announced, or
 * without being announced for long enough. Accepts the first key, because no cache has a set without it.
 */
function checkPublished(records: readonly KeyRecord[], key: LiveRecord, at: At): void {
  const { unannounced = false, publishedAt, activatedAt } = key;
  if ((!unannounced && publishedAt !== undefined) || records[0]?.kid === key.kid) return;
  if (at.areClocksOff === true) throw uncertain(at);
  const announced: LiveRecord = { ...key, state: "announced", publishedAt: publishedAt ?? activatedAt ?? at.now };
  if (at.now >= earliestEndOfWait(announced, at.policy, at.now)) return;
  throw tooEarly(announced, at, { behind: tooNew, waits: tooNew });
}

const tooNew =
  "must not sign again yet: it has not been published for long enough, so caches do not have it; to take the step anyway, set the now option (--now --yes)";

function importKey(
  change: KeyChange,
  { key, state, force }: Extract<Command, { type: "import" }>,
  { policy, now }: At,
): KeyChange {
  checkNew(change, key);
  if (!["announced", "active", "retiring"].includes(state))
    throw refused(key, `cannot be imported as ${JSON.stringify(state)}`);
  const active = activeKey(change.records, key.use);
  if (state === "announced" && active !== undefined) return announce(change, key, now, "an operator imported it");
  if (state === "retiring") {
    if (active === undefined)
      throw new RotationError("ERR_TRANSITION", "the active key must be imported before any retiring key");
    return add(
      change,
      { ...key, state, announcedAt: now, activatedAt: now, retiredAt: now },
      now,
      "it was active elsewhere",
      "imported",
    );
  }
  if (active !== undefined && force !== true) {
    throw new RotationError(
      "ERR_TOO_EARLY",
      `kid ${JSON.stringify(active.kid)} is active, and caches do not have the imported key, so verifiers that do not refetch would reject its tokens; import it as announced, and it will start signing at ${new Date(now + announceForMs(policy)).toISOString()}`,
      { allowedAt: now + announceForMs(policy) },
    );
  }
  const record = announcedRecord(key, now);
  const added = add(change, record, now, "an operator imported it", "imported");
  return unannounced(added, record, now, "it was imported as the active key");
}

/** @param given settings to change */
function changePolicy(change: KeyChange, given: RotationPolicyOptions, { policy: before, now }: At): KeyChange {
  const policy = { ...before, ...rotationPolicy({ ...knownOf(before), ...given }) };
  const changed = policyNames.filter((name) => policy[name] !== before[name]);
  if (changed.length === 0) return change;
  const reason = changed.map((name) => `${name} ${before[name]} -> ${policy[name]}`).join(", ");
  return { ...change, policy, events: [...change.events, { at: now, type: "policy", reason }] };
}

/** Activates a key even though caches might not have it. */
function unannounced(change: KeyChange, key: LiveRecord, now: number, reason: string): KeyChange {
  return activateKey(change, { ...key, unannounced: true }, now, reason);
}

function announcedRecord(key: NewKey, now: number): LiveRecord {
  return { ...key, state: "announced", announcedAt: now };
}

function add(
  change: KeyChange,
  record: KeyRecord,
  at: number,
  reason: string,
  type: "announced" | "imported" = "announced",
): KeyChange {
  return {
    records: [...change.records, record],
    events: [...change.events, { at, type, kid: record.kid, use: record.use, reason }],
  };
}

function checkNew({ records }: KeyChange, key: NewKey, use: KeyUse = key.use): void {
  if (!keyUses.includes(key.use)) throw refused(key, `has use ${JSON.stringify(key.use)}, but use must be sig or enc`);
  if (key.use !== use) throw refused(key, `has use "${key.use}", but a key with use "${use}" is needed`);
  if (use === "enc" && activeKey(records, "sig") === undefined)
    throw refused(key, "is an encryption key, but a store's first key must be a signing key");
  const used = records.find(({ kid }) => kid === key.kid);
  if (used !== undefined) {
    const message = `kid ${JSON.stringify(key.kid)} belongs to a key that is ${used.state}; a kid must never be used twice`;
    throw new RotationError("ERR_KID_USED", message);
  }
  const twin = records.find(({ thumbprint }) => thumbprint === key.thumbprint);
  if (twin !== undefined)
    throw refused(
      twin,
      `already belongs to this key, which is ${twin.state}; to give this key a different kid, import it into a store that has never contained it`,
    );
}

function refused({ kid }: Pick<KeyRecord, "kid">, rule: string): RotationError {
  return new RotationError("ERR_TRANSITION", `kid ${JSON.stringify(kid)} ${rule}`);
}

function uncertain({ policy: { clockSkewSeconds } }: At): RotationError {
  return new RotationError(
    "ERR_TOO_EARLY",
    `nothing was changed, because the step may be too early: the clocks of this machine and the store differ by more than ${clockSkewSeconds} s (clockSkewSeconds), or one of them was changed; correct the clocks, or set force to take the step anyway (--force --yes)`,
  );
}

/** @param rules messages to use before the waiting period has begun, and during it */
function tooEarly(
  record: KeyRecord,
  { policy, now }: At,
  rules: { readonly behind: string; readonly waits: string },
): RotationError {
  const allowedAt = earliestEndOfWait(record, policy, now);
  const isBehind = endOfWait(record, policy) === undefined;
  const rule = isBehind
    ? `${rules.behind}; the period begins once the latest change to the key has been read back and each target has received it`
    : rules.waits;
  const from = `${timeText(allowedAt)}${isBehind ? " at the earliest" : ""}`;
  return new RotationError(
    "ERR_TOO_EARLY",
    `kid ${JSON.stringify(record.kid)} ${rule}; this step will be allowed at ${from}`,
    {
      allowedAt,
    },
  );
}
