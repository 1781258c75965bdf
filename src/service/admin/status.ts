import { type PlanStep, type RotationPlan, plan } from "../../rotation/explain/plan.ts";
import {
  type TargetStatus,
  type ReplicaStatus,
  type StoreView,
  type WaitStatus,
  targetStatus,
  replicaStatus,
  waitsOf,
} from "../../rotation/explain/replicas.ts";
import type { StoreHealth } from "../../rotation/manager/types.ts";
import { rotatingSince } from "../../rotation/rules/mode-intervals.ts";
import {
  type KeyEvent,
  type KeyRecord,
  type KeyState,
  isRotating,
  keyUses,
  liveRecords,
  stateSince,
  uriOf,
} from "../../rotation/rules/records.ts";
import type { KnownManager } from "../keys/known.ts";
import { type Fault, faultsOf } from "./faults.ts";
import type { Known } from "./known.ts";

/** One key. */
export interface KeyStatus {
  readonly kid: string;
  readonly use: "sig" | "enc";
  readonly alg: string;
  /** Of an encryption key from a file: when it is no longer published. */
  readonly notAfter?: number | undefined;
  /** Of keys that jwksd does not manage, the first one is `active`, and the others are `published`. */
  readonly state: KeyState | "published";
  /** Since when. */
  readonly since?: number | undefined;
  readonly privateHalf: "wrapped in the store" | "external" | "not in jwksd";
  /** URI of an external key. */
  readonly uri?: string | undefined;
  readonly next?: PlanStep | undefined;
}

/** A process, as this one sees it. */
export interface SeenReplica extends ReplicaStatus {
  readonly isSelf: boolean;
  /** Whether it is stale: it does not sign, and is not ready. Known of this process only. */
  readonly isStale: boolean;
}

/** All that a running service shows of itself. Plain JSON, without secrets; all times are epoch milliseconds. */
export interface Status extends Pick<
  Known,
  "phase" | "issuer" | "jwksUri" | "pid" | "commandFlags" | "notReady" | "events"
> {
  /** By the clock of the store, where there is one. */
  readonly now: number;
  /** Where the keys come from. `saved-set`: the store was not reached since the start. */
  readonly source: "store" | "files" | "saved-set";
  /** Live keys, signing keys first. */
  readonly keys: readonly KeyStatus[];
  /** The next step; of several at one moment, the step that makes a key active. */
  readonly next?: PlanStep | undefined;
  /** The plan of managed keys. */
  readonly plan?: RotationPlan | undefined;
  readonly replicas: readonly SeenReplica[];
  /** Number of presence records that were not read. */
  readonly unread: number;
  readonly targets: readonly TargetStatus[];
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
  /** The newest entries of the audit log, newest first. */
  readonly past: readonly KeyEvent[];
}

/** Makes the status of a service. */
export function statusOf(known: Known): Status {
  const { phase, issuer, jwksUri, pid, commandFlags, notReady, manager, withoutStore, events } = known;
  const aheadMs = manager?.clockAheadMs ?? 0;
  const now = known.now + aheadMs;
  const told = {
    now,
    phase,
    issuer,
    jwksUri,
    pid,
    commandFlags,
    notReady,
    rotationMode: rotationModeOf(known, now),
    faults: faultsOf(known, now),
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
    return {
      ...told,
      source,
      keys: publishedKeys(known),
      replicas: [],
      unread: 0,
      targets: [],
      waits: [],
      past: [],
      store,
    };
  }
  const { document, processes, unread, health } = manager;
  const { records, policy, targets, events: log } = document;
  const ahead = plan(records, policy, now);
  const { steps } = ahead;
  const view = { document, processes, unread, now };
  const { lastAttemptAt, lastSuccessAt, lastError, revision = document.revision } = health.store;
  const managed = new Set(records.map(({ kid }) => kid));
  const fromFiles = known.published.filter(({ jwk }) => !managed.has(jwk.kid));
  return {
    ...told,
    source: "store",
    keys: [...managedKeys(records, steps), ...fromFiles.map((key) => keyOfFile(key, "published"))],
    next: steps.find(({ at, action }) => at === steps[0]?.at && action === "activated") ?? steps[0],
    plan: ahead,
    replicas: replicasOf(manager, view),
    unread,
    targets: targets.map((target) => targetStatus(target, view)),
    waits: waitsOf(view),
    revision: { published: document.revision, stored: revision },
    store: { lastAttemptAt, lastSuccessAt, lastError, aheadMs },
    past: log.toReversed(),
  };
}

function rotationModeOf({ isShort, isShortBySetting, manager }: Known, now: number): Status["rotationMode"] {
  const { records = [] } = manager?.document ?? {};
  if (isRotating(records)) return { isOn: true, because: "keys", since: rotatingSince(records, now) };
  if (isShortBySetting) return { isOn: true, because: "setting" };
  return isShort ? { isOn: true, because: "outage" } : { isOn: false };
}

function managedKeys(records: readonly KeyRecord[], steps: readonly PlanStep[]): KeyStatus[] {
  const live = keyUses.flatMap((use) => liveRecords(records).filter((record) => record.use === use));
  return live.map((record) => {
    const { kid, use, alg, state } = record;
    const uri = uriOf(record);
    return {
      kid,
      use,
      alg,
      state,
      since: stateSince(record),
      privateHalf: uri === undefined ? "wrapped in the store" : "external",
      uri,
      next: steps.find((step) => step.kid === kid),
    };
  });
}

function publishedKeys({ published }: Known): KeyStatus[] {
  return published.map((key) => {
    const isFirst = key === published.find(({ jwk }) => jwk.use === "sig");
    return keyOfFile(key, isFirst ? "active" : "published");
  });
}

function keyOfFile({ jwk, notAfter }: Known["published"][number], state: "active" | "published"): KeyStatus {
  const { kid, use, alg } = jwk;
  const ends = notAfter === Infinity ? undefined : notAfter;
  return { kid, use, alg, notAfter: ends, state, privateHalf: "not in jwksd" };
}

function replicasOf({ health, id }: KnownManager, view: StoreView): SeenReplica[] {
  return view.processes.map((line) => {
    const isSelf = line.id === id;
    return { ...replicaStatus(line, view), isSelf, isStale: isSelf && health.stale !== undefined };
  });
}
