import {
  type ReplicaStatus,
  type ReplicasAt,
  type WaitStatus,
  drainingKids,
  replicaStatus,
  waitsOf,
} from "./replicas.ts";
import { planVerbs } from "./plan-scale.ts";
import { type PlanStep, type RotationPlan, plan } from "../../rotation/rules/plan.ts";
import { isEvent } from "../../rotation/rules/audit-log.ts";
import { rotatingSince } from "../../rotation/rules/mode-intervals.ts";
import { isLive, isRotating, keyUses, recordTimes, stateSince, uriOf } from "../../rotation/rules/records.ts";
import type { KeyRecord, KeyState, StoredEvent } from "../../rotation/store/store.ts";
import { type Fault, faultsOf, replicasAt } from "./faults.ts";
import type { StoreHealth } from "../../rotation/manager/health.ts";
import type { Known, KnownManager, PublishedKey } from "./known.ts";

/** One key. */
export interface KeyStatus extends PublishedKey {
  /** Of keys that jwksd does not manage, the first one is `active`, and the others are `published`. */
  readonly state: KeyState | "published";
  /** Since when. */
  readonly since?: number | undefined;
  /** When the key came to each state, and when its waits began; no times of the future. */
  readonly times: Partial<Record<(typeof recordTimes)[number], number>>;
  readonly privateHalf: "wrapped in the store" | "external" | "not in jwksd";
  /** URI of an external key. */
  readonly uri?: string | undefined;
  readonly next?: StepStatus | undefined;
}

/** A step ahead. */
export interface StepStatus {
  readonly at: number;
  readonly kind: PlanStep["action"];
  /** The step in one word: "announce". */
  readonly verb: string;
  readonly use: "sig" | "enc";
  /** `undefined` for a key that is still to be made. */
  readonly kid?: string | undefined;
  readonly reason: string;
  readonly bound: string;
}

/** A replica, as this process sees it. */
export interface SeenReplica extends ReplicaStatus {
  readonly isSelf: boolean;
  /** Whether the replica may not sign: its lease has ended, or its clock is wrong. Known of this process only. */
  readonly isFenced: boolean;
  /** Those of `signsWith` that were replaced: only requests end with them that began with them, for 30 s at most. */
  readonly drains: readonly string[];
}

/** All that a running service shows of itself. Plain JSON, without secrets; all times are epoch milliseconds. */
export interface Status extends Pick<Known, "phase" | "issuer" | "jwksUri" | "pid" | "notReady" | "events"> {
  /** By the clock of the store, where there is one. */
  readonly now: number;
  /** Where the keys come from. `saved-set`: the store was not reached since the start. */
  readonly source: "store" | "files" | "saved-set";
  /** Live keys, signing keys first. */
  readonly keys: readonly KeyStatus[];
  /** The next step; of several at one moment, the step that makes a key active. */
  readonly next?: StepStatus | undefined;
  /** The plan of managed keys. */
  readonly plan?: RotationPlan | undefined;
  readonly replicas: readonly SeenReplica[];
  readonly waits: readonly WaitStatus[];
  /** Revisions of the store: what this process publishes, and what is newest. */
  readonly revision?: { readonly published: number; readonly stored: number } | undefined;
  readonly rotationMode: {
    readonly isOn: boolean;
    /** `keys`: a key is on its way in or out. `outage`: the store is out of reach. */
    readonly because?: "setting" | "keys" | "outage" | undefined;
    readonly since?: number | undefined;
  };
  readonly store?:
    | (Pick<StoreHealth, "lastAttemptAt" | "lastSuccessAt" | "lastError"> & {
        /** How far its clock is ahead of that of this machine, in milliseconds. */
        readonly aheadMs: number;
      })
    | undefined;
  /** Worst first. */
  readonly faults: readonly Fault[];
  /** The newest entries of the audit log, newest first. Nothing authenticates them. */
  readonly past: readonly StoredEvent[];
}

/** Makes the status of a service. */
export function statusOf(known: Known): Status {
  const { phase, issuer, jwksUri, pid, notReady, manager, withoutStore, events } = known;
  const aheadMs = aheadOf(manager);
  const at = { ...known, now: known.now + aheadMs };
  const told = {
    now: at.now,
    phase,
    issuer,
    jwksUri,
    pid,
    notReady,
    rotationMode: rotationModeOf(at),
    faults: faultsOf(at, aheadMs),
    events,
  };
  if (manager === undefined) {
    const source = withoutStore === undefined ? "files" : "saved-set";
    const store = withoutStore && {
      lastAttemptAt: withoutStore.outage.at,
      lastSuccessAt: withoutStore.savedAt,
      lastError: withoutStore.outage,
      aheadMs,
    };
    return { ...told, source, keys: publishedKeys(known), replicas: [], waits: [], past: [], store };
  }
  const { records, policy, audit, lease } = manager;
  const ahead = plan(records, policy, at.now);
  const steps = ahead.steps.map(stepOf);
  const replicas = replicasAt(manager, at.now);
  const { lastAttemptAt, lastSuccessAt, lastError, revision = 0 } = manager.health.store;
  const managed = new Set(records.map(({ kid }) => kid));
  const fromFiles = known.published.filter(({ kid }) => !managed.has(kid));
  return {
    ...told,
    source: "store",
    keys: [...managedKeys(records, steps), ...fromFiles.map((key) => keyOfFile(key, "published"))],
    next: steps.find(({ at, kind }) => at === steps[0]?.at && kind === "activated") ?? steps[0],
    plan: ahead,
    replicas: replicasOf(manager, replicas),
    waits: waitsOf(records, policy, replicas),
    revision: { published: lease.publishes, stored: revision },
    store: { lastAttemptAt, lastSuccessAt, lastError, aheadMs },
    past: audit.filter(isEvent),
  };
}

/** How far the clock of the store is ahead. */
function aheadOf(manager: KnownManager | undefined): number {
  const { loaded } = manager?.health.store ?? {};
  return loaded === undefined ? 0 : loaded.now - loaded.at;
}

function rotationModeOf({ now, isShort, isShortBySetting, manager }: Known): Status["rotationMode"] {
  if (manager !== undefined && isRotating(manager.records)) {
    return { isOn: true, because: "keys", since: rotatingSince(manager.records, now) };
  }
  if (isShortBySetting) return { isOn: true, because: "setting" };
  return isShort ? { isOn: true, because: "outage" } : { isOn: false };
}

function managedKeys(records: readonly KeyRecord[], steps: readonly StepStatus[]): KeyStatus[] {
  const live = keyUses.flatMap((use) => records.filter((record) => record.use === use && isLive(record)));
  return live.map((record) => {
    const { kid, use, alg, state } = record;
    const uri = uriOf(record);
    const times = Object.fromEntries(recordTimes.flatMap((name) => (name in record ? [[name, record[name]]] : [])));
    return {
      kid,
      use,
      alg,
      state,
      since: stateSince(record),
      times,
      privateHalf: uri === undefined ? "wrapped in the store" : "external",
      uri,
      next: steps.find((step) => step.kid === kid),
    };
  });
}

function publishedKeys({ published }: Known): KeyStatus[] {
  return published.map((key) => {
    const isFirst = key === published.find(({ use }) => use === "sig");
    return keyOfFile(key, isFirst ? "active" : "published");
  });
}

function keyOfFile(key: PublishedKey, state: "active" | "published"): KeyStatus {
  return { ...key, state, times: {}, privateHalf: "not in jwksd" };
}

function stepOf({ at, action, use, kid, reason, bound }: PlanStep): StepStatus {
  return { at, kind: action, verb: planVerbs[action], use, kid, reason, bound };
}

function replicasOf({ health, lease: own, records }: KnownManager, at: ReplicasAt): SeenReplica[] {
  return at.leases.map((lease) => {
    const isSelf = lease.id === own.id;
    const { publishes } = isSelf ? own : lease;
    const seen = { ...lease, publishes };
    const isFenced = isSelf && health.fence !== undefined;
    return { ...replicaStatus(seen, at), isSelf, isFenced, drains: drainingKids(seen, records, at) };
  });
}
