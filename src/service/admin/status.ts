import { type PlanStep, type RotationPlan, planRotation } from "../../rotation/explain/plan.ts";
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
import {
  type AuditEvent,
  type KeyRecord,
  type KeyState,
  isDecommissioned,
  isRotating,
  keyUses,
  liveRecords,
  stateSince,
  uriOf,
} from "../../rotation/rules/key-records.ts";
import { rotatingSince } from "../../rotation/rules/rotation-mode-intervals.ts";
import type { ManagerSnapshot } from "../keys/store-keys.ts";
import { type Fault, faultsOf } from "./faults.ts";
import type { ServiceSnapshot } from "./service-snapshot.ts";

/** The status of a key. */
export interface KeyStatus {
  readonly kid: string;
  readonly use: "sig" | "enc";
  readonly alg: string;
  /** Time at which the key stops being published. Only encryption keys from files have this time. */
  readonly notAfter?: number | undefined;
  /**
   * State of the key. If jwksd does not manage the keys, the first signing key is `active` and the others are
   * `published`.
   */
  readonly state: KeyState | "published";
  /** Time at which the key entered this state. */
  readonly since?: number | undefined;
  readonly privateHalf: "wrapped in the store" | "external" | "not in jwksd";
  /** URI of a key in an HSM or key service. */
  readonly uri?: string | undefined;
  readonly next?: PlanStep | undefined;
}

/** A process that this process knows about. */
export interface SeenReplica extends ReplicaStatus {
  readonly isSelf: boolean;
  /**
   * Whether the process is stale, and therefore does not sign and is not ready. A process knows this only about itself.
   */
  readonly isStale: boolean;
}

/** The status that a running service shows. Plain JSON, without secrets. All times are in epoch milliseconds. */
export interface Status extends Pick<
  ServiceSnapshot,
  "phase" | "issuer" | "jwksUri" | "pid" | "commandFlags" | "notReady" | "events"
> {
  /** Current time, by the store's clock if there is a store. */
  readonly now: number;
  /** Source of the keys. `saved-set` means that the store has not been reached since startup. */
  readonly source: "store" | "files" | "saved-set";
  /** Live keys, signing keys first. */
  readonly keys: readonly KeyStatus[];
  /** Next step. If several steps are due at the same time, it is the one that activates a key. */
  readonly next?: PlanStep | undefined;
  /** Plan for managed keys. */
  readonly plan?: RotationPlan | undefined;
  readonly replicas: readonly SeenReplica[];
  /** Number of presence records that were not read. */
  readonly unread: number;
  readonly targets: readonly TargetStatus[];
  readonly waits: readonly WaitStatus[];
  /** Revisions of the store: the one that this process publishes, and the latest. */
  readonly revision?: { readonly published: number; readonly stored: number } | undefined;
  readonly rotationMode: {
    readonly isOn: boolean;
    /**
     * Reason why the mode is on. `keys` means that a key is announced or retiring; `outage` means that the store is
     * unreachable.
     */
    readonly because?: "setting" | "keys" | "decommissioned" | "outage" | undefined;
    readonly since?: number | undefined;
  };
  readonly store?:
    | (Pick<StoreHealth, "lastAttemptAt" | "lastSuccessAt" | "lastError"> & {
        /**
         * Difference between the store's clock and this machine's clock, in milliseconds; positive if the store's clock
         * is ahead.
         */
        readonly aheadMs: number;
      })
    | undefined;
  /** Faults, worst first. */
  readonly faults: readonly Fault[];
  /** Latest entries in the audit log, most recent first. */
  readonly past: readonly AuditEvent[];
}

/** Returns a service's status. */
export function statusOf(service: ServiceSnapshot): Status {
  const { phase, issuer, jwksUri, pid, commandFlags, notReady, manager, withoutStore, events } = service;
  const aheadMs = manager?.clockAheadMs ?? 0;
  const now = service.now + aheadMs;
  const common = {
    now,
    phase,
    issuer,
    jwksUri,
    pid,
    commandFlags,
    notReady,
    rotationMode: rotationModeOf(service, now),
    faults: faultsOf(service, now),
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
      ...common,
      source,
      keys: publishedKeys(service),
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
  const rotationPlan = planRotation(records, policy, now);
  const { steps } = rotationPlan;
  const view = { document, processes, unread, now };
  const { lastAttemptAt, lastSuccessAt, lastError, revision = document.revision } = health.store;
  const managed = new Set(records.map(({ kid }) => kid));
  const fromFiles = service.published.filter(({ jwk }) => !managed.has(jwk.kid));
  return {
    ...common,
    source: "store",
    keys: [...managedKeys(records, steps), ...fromFiles.map((key) => keyOfFile(key, "published"))],
    next: steps.find(({ at, action }) => at === steps[0]?.at && action === "activated") ?? steps[0],
    plan: rotationPlan,
    replicas: replicasOf(manager, view),
    unread,
    targets: targets.map((target) => targetStatus(target, view)),
    waits: waitsOf(view),
    revision: { published: document.revision, stored: revision },
    store: { lastAttemptAt, lastSuccessAt, lastError, aheadMs },
    past: log.toReversed(),
  };
}

function rotationModeOf({ isShort, isShortBySetting, manager }: ServiceSnapshot, now: number): Status["rotationMode"] {
  const { records = [] } = manager?.document ?? {};
  if (isDecommissioned(records)) return { isOn: true, because: "decommissioned" };
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

function publishedKeys({ published }: ServiceSnapshot): KeyStatus[] {
  return published.map((key) => {
    const isFirst = key === published.find(({ jwk }) => jwk.use === "sig");
    return keyOfFile(key, isFirst ? "active" : "published");
  });
}

function keyOfFile({ jwk, notAfter }: ServiceSnapshot["published"][number], state: "active" | "published"): KeyStatus {
  const { kid, use, alg } = jwk;
  const ends = notAfter === Infinity ? undefined : notAfter;
  return { kid, use, alg, notAfter: ends, state, privateHalf: "not in jwksd" };
}

function replicasOf({ health, id }: ManagerSnapshot, view: StoreView): SeenReplica[] {
  return view.processes.map((presence) => {
    const isSelf = presence.id === id;
    return { ...replicaStatus(presence, view), isSelf, isStale: isSelf && health.stale !== undefined };
  });
}
