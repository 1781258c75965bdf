import { heardAt, heldUpSteps, heldUpText } from "./replicas.ts";
import { planVerbs } from "./plan-scale.ts";
import { type PlanStep, type RotationPlan, plan } from "../../rotation/rules/plan.ts";
import { rotatingSince } from "../../rotation/rules/mode-intervals.ts";
import { isStanding } from "../../rotation/rules/standing.ts";
import { isLive, isRotating, keyUses, recordTimes, stateSince, uriOf } from "../../rotation/rules/records.ts";
import type { KeyRecord, KeyState, StoredEvent } from "../../rotation/store/store.ts";
import { type Fault, faultsOf, replicasAt } from "./faults.ts";
import type { Known, KnownManager, PublishedKey, StoreSeen } from "./known.ts";

/** One key. */
export interface KeyStatus extends PublishedKey {
  /** Of keys that jwksd does not manage, the first one is `active`, and the others are `published`. */
  readonly state: KeyState | "published";
  /** Since when. */
  readonly since?: number | undefined;
  /** When it came to each state, and its waits began; only of what has been. */
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
  /** What is done, in one word: "announce". */
  readonly verb: string;
  readonly use: "sig" | "enc";
  /** Not of a key that is still to be made. */
  readonly kid?: string | undefined;
  readonly reason: string;
  readonly bound: string;
}

export interface ReplicaStatus {
  readonly id: string;
  readonly name: string;
  readonly isSelf: boolean;
  readonly lastSeenAt: number;
  /** Until when the others rely on it; `Infinity` for a copy, which is served without a process. */
  readonly until: number;
  /** The revision that it publishes; 0 for none yet. */
  readonly publishes: number;
  /** By how many revisions. */
  readonly behind: number;
  readonly signsWith: readonly string[];
  /** It may not sign, because its lease has ended. Only this process knows that of itself. */
  readonly isFenced: boolean;
}

/** A step whose wait has not begun, because replicas have not followed. */
export interface WaitStatus {
  readonly kid: string;
  readonly use: "sig" | "enc";
  readonly action: "activated" | "removed";
  /** Since when it cannot begin. */
  readonly since: number;
  /** Ids of the replicas for which it waits. */
  readonly replicas: readonly string[];
  readonly text: string;
}

/** All that a running service tells of itself. Plain JSON, without secrets; all times are epoch milliseconds. */
export interface Status extends Pick<Known, "phase" | "issuer" | "jwksUri" | "pid" | "notReady" | "events"> {
  /** By the clock of the store, where there is one. */
  readonly now: number;
  /** Where the keys come from. `kept-set`: the store was not reached since the start. */
  readonly source: "store" | "files" | "kept-set";
  /** Live keys, signing keys first. */
  readonly keys: readonly KeyStatus[];
  /** Of several at one moment, the one that makes a key active. */
  readonly next?: StepStatus | undefined;
  /** Of keys in a store. */
  readonly plan?: RotationPlan | undefined;
  readonly replicas: readonly ReplicaStatus[];
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
    | (Pick<StoreSeen, "lastAttemptAt" | "lastSuccessAt" | "lastError"> & {
        /** How far its clock is ahead of that of this machine, in milliseconds. */
        readonly aheadMs: number;
      })
    | undefined;
  /** Worst first. */
  readonly faults: readonly Fault[];
  /** The newest entries of the audit log, newest first. Nothing authenticates them. */
  readonly past: readonly StoredEvent[];
}

/** The status of a service that knows this. */
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
    const source = withoutStore === undefined ? "files" : "kept-set";
    const store = withoutStore && {
      lastAttemptAt: withoutStore.outage.at,
      lastSuccessAt: withoutStore.keptAt,
      lastError: withoutStore.outage,
      aheadMs,
    };
    return { ...told, source, keys: publishedKeys(known), replicas: [], waits: [], past: [], store };
  }
  const { records, policy, store } = manager;
  const ahead = plan(records, policy, at.now);
  const steps = ahead.steps.map(stepOf);
  const { lastAttemptAt, lastSuccessAt, lastError, self, revision = 0, audit } = store;
  const managed = new Set(records.map(({ kid }) => kid));
  const fromFiles = known.published.filter(({ kid }) => !managed.has(kid));
  return {
    ...told,
    source: "store",
    keys: [...managedKeys(records, steps), ...fromFiles.map((key) => keyOfFile(key, "published"))],
    next: steps.find(({ at, kind }) => at === steps[0]?.at && kind === "activated") ?? steps[0],
    plan: ahead,
    replicas: replicasOf(manager, at.now),
    waits: waitsOf(manager, at.now),
    revision: { published: self?.publishes ?? 0, stored: revision },
    store: { lastAttemptAt, lastSuccessAt, lastError, aheadMs },
    past: audit.filter(isShowable),
  };
}

/** Whether an event is one: whoever can write the store can write anything into its audit log. */
function isShowable({ at, type, kid, use, reason }: StoredEvent): boolean {
  return Math.abs(at) <= 8.64e15 && [type, kid, use, reason].every((text) => typeof text === "string");
}

/** How far the clock of the store is ahead. */
function aheadOf(manager: KnownManager | undefined): number {
  const { loaded } = manager?.store ?? {};
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

function replicasOf(manager: KnownManager, now: number): ReplicaStatus[] {
  const { health, store } = manager;
  const at = replicasAt(manager, now);
  return at.leases.map((lease) => {
    const { id, name, until, signsWith } = lease;
    const isSelf = id === store.self?.id;
    const publishes = isSelf ? store.self.publishes : lease.publishes;
    return {
      id,
      name,
      isSelf,
      lastSeenAt: heardAt(lease, at),
      until: isStanding(lease) ? Infinity : until,
      publishes,
      behind: Math.max(at.revision - publishes, 0),
      signsWith,
      isFenced: isSelf && health.fencedAt !== undefined,
    };
  });
}

function waitsOf(manager: KnownManager, now: number): WaitStatus[] {
  const at = replicasAt(manager, now);
  return heldUpSteps(manager.records, manager.policy, at).map((step) => ({
    kid: step.record.kid,
    use: step.record.use,
    action: step.action,
    since: stateSince(step.record),
    replicas: step.behind.map(({ id }) => id),
    text: heldUpText(step, at),
  }));
}
