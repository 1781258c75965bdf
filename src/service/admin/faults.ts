import { durationText, kidText, relativeText, timeText } from "../../base/format.ts";
import { shellWord } from "../../base/printable.ts";
import { type StoreView, hasCaughtUp, behindText, waitsOf } from "../../rotation/explain/replicas.ts";
import type { KnownError } from "../../rotation/manager/types.ts";
import { type DueStep, dueSteps } from "../../rotation/rules/due.ts";
import type { KeyRecord } from "../../rotation/rules/key-records.ts";
import { withFlags } from "../config/flags-in-messages.ts";
import { policyDifference } from "../config/policy-difference.ts";
import { fillingText } from "../keys/manager-log.ts";
import type { KeysSnapshot, ManagerSnapshot } from "../keys/store-keys.ts";
import { type Remedy, listing, remedyOf } from "./remedies.ts";
import type { ServiceSnapshot } from "./service-snapshot.ts";

/** A fault, described for an operator. */
export interface Fault extends Remedy {
  readonly severity: "error" | "warning";
  /** Stable code: an error code, or a code from the table in `docs/operations.md`. */
  readonly code: string;
  readonly text: string;
  readonly kid?: string | undefined;
  /** Time at which the fault began, in epoch milliseconds, or `undefined` if unknown. */
  readonly since?: number | undefined;
}

/** How late something may be before it is reported as a fault, in milliseconds. */
const graceMs = 60_000;

/**
 * Returns a service's faults, worst first. Each fault's command includes the flags that select this service's store.
 *
 * @param now current time, by the store's clock
 */
export function faultsOf(service: ServiceSnapshot, now: number): Fault[] {
  const { manager, withoutStore, refused, pid, commandFlags } = service;
  const faults = [
    ...(withoutStore === undefined ? [] : [savedSet(withoutStore)]),
    ...(manager === undefined ? [] : managerFaults(manager, now)),
    ...(refused === undefined ? [] : [refusedFiles(refused, pid)]),
  ];
  const isUnexplained = faults.length === 0 && service.phase === "running" && service.notReady !== undefined;
  const all = isUnexplained ? [notReady(service.notReady ?? "")] : faults;
  return all
    .map((fault) => withStore(fault, commandFlags))
    .toSorted((a, b) => Number(a.severity === "warning") - Number(b.severity === "warning"));
}

/** Adds the flags that select the store to the fault's command. `jwksd signer` and other programs do not need them. */
function withStore(fault: Fault, flags: string): Fault {
  const { command } = fault;
  const needsStore = /^jwksd (?!signer )/.test(command) && flags !== "";
  return needsStore ? { ...fault, command: `${command} ${flags}` } : fault;
}

function managerFaults(manager: ManagerSnapshot, now: number): Fault[] {
  const { document, health, processes, unread } = manager;
  const recordOf = (kid: string): KeyRecord | undefined => document.records.find((record) => record.kid === kid);
  const keyFaults = (errors: Readonly<Record<string, KnownError>>, problem: (name: string) => string): Fault[] =>
    Object.entries(errors).map(([kid, error]) =>
      errorFault(problem(`"${kidText(kid)}"`), error, remedyOf(error.code, recordOf(kid)), { kid }),
    );
  const view = { document, processes, unread, now };
  const faults = [
    unmanaged(manager),
    staleProcess(manager),
    ...keyFaults(
      health.unavailable,
      (name) => `The active key ${name} cannot be opened by this process but is still published`,
    ),
    ...keyFaults(
      health.activationBlocked,
      (name) => `The next key ${name} cannot sign, so the active key stays active`,
    ),
    clockSkew(manager),
    ...lateSteps(manager, now),
    ...waiting(view),
    ...behind(manager, view),
    policyDiffers(manager),
    storeFilling(manager),
    ...Object.entries(health.destroyFailed).map(([kid, error]) => {
      const problem = `The removed key "${kidText(kid)}" could not be destroyed in its HSM or key service`;
      const retry = { remedy: "This command retries it:", command: `jwksd keys destroy ${shellWord(kid)}` };
      return errorFault(problem, error, retry, { kid, severity: "warning" });
    }),
  ];
  return faults.filter((fault) => fault !== undefined);
}

/** Creates a fault, with severity "error" unless `more` sets another. */
function fault(code: string, text: string, remedy: Remedy, more: Partial<Fault> = {}): Fault {
  return { severity: "error", code, text, ...remedy, ...more };
}

/** Creates the fault for an error from the manager. */
function errorFault(
  problem: string,
  { at, code, message }: KnownError,
  remedy: Remedy,
  more: Partial<Fault> = {},
): Fault {
  return fault(code, `${problem}: ${asSentenceEnd(message)}`, remedy, { since: at, ...more });
}

function savedSet({ savedAt, outage }: NonNullable<KeysSnapshot["withoutStore"]>): Fault {
  const problem = `The store has been unreachable since startup, so jwksd is publishing the set from ${timeText(savedAt)} and signing nothing`;
  return errorFault(problem, outage, remedyOf(outage.code));
}

function refusedFiles(refused: KnownError, pid: number): Fault {
  return errorFault("The key files were rejected, so the old keys remain in use", refused, {
    remedy: "Correct the files. jwksd reads them again when they change, or when you run this command:",
    command: `kill -HUP ${pid}`,
    guide: "alerts.md#jwksdupdaterefused",
  });
}

function notReady(why: string): Fault {
  const remedy = { ...listing("Check this service's log."), guide: "alerts.md#jwksdnotready" };
  return fault("NOT_READY", `This service is not ready: ${asSentenceEnd(why)}`, remedy);
}

function staleProcess({ health: { stale } }: ManagerSnapshot): Fault | undefined {
  const remedy = listing("This process resumes signing automatically once you fix the cause.");
  return stale && errorFault("This process is stale, so it does not sign and is not ready", stale, remedy);
}

function policyDiffers({ policyGiven, document }: ManagerSnapshot): Fault | undefined {
  const { text, flags } = policyDifference(policyGiven, document.policy);
  if (flags === "") return undefined;
  const remedy = "Remove these settings, or write them to the store with this command:";
  return fault("POLICY_DIFFERS", `${text}.`, { remedy, command: `jwksd policy ${flags}` }, { severity: "warning" });
}

function storeFilling({ health: { store } }: ManagerSnapshot): Fault | undefined {
  if (store.filling === undefined) return undefined;
  const text = asSentenceEnd(fillingText(store.filling));
  const remedy = {
    remedy:
      "Before the store is full, copy the keys to a larger store with jwksd store migrate. This command lists the keys:",
    command: "jwksd keys --all",
    guide: "stores.md#capacity",
  };
  return fault("STORE_FILLING", text.charAt(0).toUpperCase() + text.slice(1), remedy, { severity: "warning" });
}

function unmanaged({ health }: ManagerSnapshot): Fault | undefined {
  const { lastError, lastSuccessAt = 0 } = health.store;
  const outage = lastError !== undefined && lastError.at > lastSuccessAt ? lastError : undefined;
  const cause = health.failure ?? outage;
  if (cause === undefined) return undefined;
  const problem =
    cause.code === "ERR_UPDATE"
      ? "The latest keys could not be published"
      : "Keys cannot be managed, so no steps are taken and the last valid keys remain in use";
  return errorFault(problem, cause, remedyOf(cause.code));
}

function clockSkew({ document: { policy }, clockAheadMs: aheadMs }: ManagerSnapshot): Fault | undefined {
  if (Math.abs(aheadMs) <= policy.clockSkewSeconds * 1000) return undefined;
  const by = `${durationText(aheadMs)} ${aheadMs > 0 ? "behind" : "ahead of"}`;
  const text = `This machine's clock is ${by} the store's clock, but clockSkewSeconds allows only ${policy.clockSkewSeconds} s. Until that is corrected, this process takes no steps and does not sign.`;
  return fault("CLOCK_SKEW", text, {
    remedy: "Correct the clock that is wrong. This command shows whether this machine's clock is synchronized:",
    command: "timedatectl",
    guide: "alerts.md#jwksdclockskew",
  });
}

/** Returns a fault for each overdue step. */
function lateSteps({ document: { records, policy } }: ManagerSnapshot, now: number): Fault[] {
  const late = dueSteps(records, policy).filter(({ at = Infinity }) => now > at + graceMs);
  return late.map((step) => lateStep(step, now));
}

function lateStep({ kid, use, step, at: since = 0 }: DueStep, now: number): Fault {
  const key = `${use === "sig" ? "signing key" : "encryption key"} "${kidText(kid)}"`;
  const when = `at ${timeText(since)}, ${relativeText(since, now)}`;
  if (step === "announce") {
    const remedy = {
      remedy: "Fix the other faults; jwksd then announces the next key automatically. This command announces it now:",
      command: use === "sig" ? "jwksd rotate" : "jwksd keys announce --use enc",
      guide: "alerts.md#jwksdnosuccessor",
    };
    const text = `A key to replace the ${key} should have been announced ${when}, but there is none.`;
    return fault("NO_SUCCESSOR", text, remedy, { kid, since });
  }
  const remedy = {
    remedy: "Fix the other faults; jwksd then takes the step automatically. This command shows the planned steps:",
    command: "jwksd plan",
    guide: "alerts.md#jwksdstepoverdue",
  };
  const text = `The ${key} should have ${step === "activate" ? "become active" : "been removed"} ${when}.`;
  return fault("STEP_OVERDUE", text, remedy, { kid, since });
}

/**
 * Returns a fault for each step whose waiting period should have begun by now. Allows for a short delay, because every
 * rotation has one.
 */
function waiting(view: StoreView): Fault[] {
  const late = waitsOf(view).filter(({ since }) => view.now > since + graceMs);
  return late.map(({ text, kid, since }) =>
    fault("STEP_BLOCKED", text, listing("Publish to the target again."), { severity: "warning", kid, since }),
  );
}

/** Returns a fault for each process that should have published the latest revision by now but has not. */
function behind({ health }: ManagerSnapshot, view: StoreView): Fault[] {
  const { revisionSince = Infinity } = health.store;
  if (view.now <= revisionSince + graceMs) return [];
  const late = view.processes.filter((presence) => !hasCaughtUp(presence, view.document.revision, view));
  const remedy = listing("Check that replica's log.");
  return late.map((presence) => fault("REPLICA_BEHIND", behindText(presence, view), remedy, { severity: "warning" }));
}

/** Formats a message so that a sentence can end with it. */
const asSentenceEnd = (message: string): string => withFlags(/[.!?]$/.test(message) ? message : `${message}.`);
