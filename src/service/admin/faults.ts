import { withFlags } from "../config/setting-names.ts";
import { fillingText } from "../keys/manager-events.ts";
import { policyDifference } from "../config/policy-difference.ts";
import { type StoreView, hasFollowed, lateText, waitsOf } from "../../rotation/explain/replicas.ts";
import { type DueStep, dueSteps } from "../../rotation/rules/due.ts";
import { durationText, kidText, relativeText, timeText } from "../../base/format.ts";
import type { KeyRecord } from "../../rotation/rules/records.ts";
import type { KnownError } from "../../rotation/manager/health.ts";
import type { KnownManager, KnownWithoutStore } from "../keys/known.ts";
import type { Known } from "./known.ts";
import { type Remedy, listing, remedyOf } from "./remedies.ts";
import { shellWord } from "../../base/printable.ts";

/** Something that is wrong, in words. */
export interface Fault extends Remedy {
  readonly severity: "error" | "warning";
  /** A stable code: that of an error, or one of the table in `docs/alerts.md`. */
  readonly code: string;
  readonly text: string;
  readonly kid?: string | undefined;
  /** Since when, in epoch milliseconds, where that is known. */
  readonly since?: number | undefined;
}

/** How late something may be before it is a fault. */
const graceMs = 60_000;

/**
 * What is wrong with a service, the worst first. Each command finds the store of this service.
 *
 * @param now by the clock of the store
 */
export function faultsOf(known: Known, now: number): Fault[] {
  const { manager, withoutStore, refused, pid, commandFlags } = known;
  const faults = [
    ...(withoutStore === undefined ? [] : [savedSet(withoutStore)]),
    ...(manager === undefined ? [] : managerFaults(manager, now)),
    ...(refused === undefined ? [] : [refusedFiles(refused, pid)]),
  ];
  const isUnexplained = faults.length === 0 && known.phase === "running" && known.notReady !== undefined;
  const all = isUnexplained ? [notReady(known.notReady ?? "")] : faults;
  return all
    .map((fault) => withStore(fault, commandFlags))
    .toSorted((a, b) => Number(a.severity === "warning") - Number(b.severity === "warning"));
}

/** Its command with the flags that name the store. Commands for one signer, and those of other programs, need none. */
function withStore(fault: Fault, flags: string): Fault {
  const { command } = fault;
  const needsStore = /^jwksd (?!signer )/.test(command) && flags !== "";
  return needsStore ? { ...fault, command: `${command} ${flags}` } : fault;
}

function managerFaults(manager: KnownManager, now: number): Fault[] {
  const { document, health, processes } = manager;
  const { records } = document;
  const recordOf = (kid: string): KeyRecord | undefined => records.find((record) => record.kid === kid);
  const view = { document, processes, now };
  const faults = [
    unmanaged(manager),
    staleProcess(manager),
    ...Object.entries(health.unopened).map(([kid, error]) => {
      const what = `The active key "${kidText(kid)}" cannot be opened here, and is published all the same`;
      return faultOf(what, error, remedyOf(error.code, recordOf(kid)), kid);
    }),
    ...Object.entries(health.heldBack).map(([kid, error]) => {
      const what = `The next key "${kidText(kid)}" cannot sign, so the active one stays`;
      return faultOf(what, error, remedyOf(error.code, recordOf(kid)), kid);
    }),
    clockDiffers(manager),
    ...overdue(manager, now),
    ...noSuccessor(manager, now),
    ...waiting(view),
    ...behind(manager, view),
    policyDiffers(manager),
    storeFilling(manager),
    ...Object.entries(health.undestroyed).map(([kid, error]) => {
      const what = `The key "${kidText(kid)}" is gone, and could not be destroyed where it was made`;
      const again = { remedy: "This command tries it again:", command: `jwksd keys destroy ${shellWord(kid)}` };
      return faultOf(what, error, again, kid, "warning");
    }),
  ];
  return faults.filter((fault) => fault !== undefined);
}

function faultOf(
  what: string,
  { at, code, message }: KnownError,
  remedy: Remedy,
  kid?: string,
  severity: Fault["severity"] = "error",
): Fault {
  return { severity, code, text: `${what}: ${ended(message)}`, kid, since: at, ...remedy };
}

function savedSet({ savedAt, outage }: KnownWithoutStore): Fault {
  const what = `The store was not reached since the start, so the set of ${timeText(savedAt)} is published, and nothing is signed`;
  return faultOf(what, outage, remedyOf(outage.code));
}

function refusedFiles(refused: KnownError, pid: number): Fault {
  return faultOf("The key files were refused, and the old keys stay in use", refused, {
    remedy: "Correct the files. They are read again when they change, and after this command:",
    command: `kill -HUP ${pid}`,
    guide: "alerts.md#jwksdupdaterefused",
  });
}

function notReady(why: string): Fault {
  return {
    severity: "error",
    code: "NOT_READY",
    text: `This service is not ready: ${ended(why)}`,
    ...listing("Look at the log."),
    guide: "alerts.md#jwksdnotready",
  };
}

function staleProcess({ health: { stale } }: KnownManager): Fault | undefined {
  if (stale === undefined) return undefined;
  return {
    severity: "error",
    code: stale.code,
    text: `Stale, and not ready: ${ended(stale.message)}`,
    since: stale.at,
    ...listing("It signs again by itself when the cause is gone."),
  };
}

function policyDiffers({ policyGiven, document }: KnownManager): Fault | undefined {
  const { text, flags } = policyDifference(policyGiven, document.policy);
  if (flags === "") return undefined;
  return {
    severity: "warning",
    code: "POLICY_DIFFERS",
    text: `${text}.`,
    remedy: "Leave these settings out, or write them into the store with this command:",
    command: `jwksd policy ${flags}`,
  };
}

function storeFilling({ health: { store } }: KnownManager): Fault | undefined {
  if (store.filling === undefined) return undefined;
  return {
    severity: "warning",
    code: "STORE_FILLING",
    text: ended(sentence(fillingText(store.filling))),
    remedy:
      "Before it is full, copy the keys into a store that can hold more, with jwksd store migrate. This command lists them:",
    command: "jwksd keys --all",
    guide: "stores.md#what-a-store-can-hold",
  };
}

const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

function unmanaged({ health }: KnownManager): Fault | undefined {
  const { lastError, lastSuccessAt = 0 } = health.store;
  const outage = lastError !== undefined && lastError.at > lastSuccessAt ? lastError : undefined;
  const cause = health.failure ?? outage;
  if (cause === undefined) return undefined;
  const { code } = cause;
  const what =
    code === "ERR_UPDATE"
      ? "The newest keys could not be published"
      : "Keys cannot be managed, so no step is taken, and the last good keys stay in use";
  return faultOf(what, cause, remedyOf(code));
}

function clockDiffers({ document: { policy }, clockAheadMs: aheadMs }: KnownManager): Fault | undefined {
  if (Math.abs(aheadMs) <= policy.clockSkewSeconds * 1000) return undefined;
  const by = `${durationText(aheadMs)} ${aheadMs > 0 ? "behind" : "ahead of"}`;
  return {
    severity: "error",
    code: "CLOCK_DIFFERS",
    text: `The clock of this machine is ${by} that of the store, more than clockSkewSeconds ${policy.clockSkewSeconds} allows, so this process takes no step and does not sign.`,
    remedy: "Set the clock of the machine that is wrong. This command says whether this one is synchronized:",
    command: "timedatectl",
    guide: "alerts.md#jwksdclockoff",
  };
}

interface LateStep extends DueStep {
  readonly at: number;
}

/** The steps that should have been taken, with the time at which they were due. */
function lateSteps({ document: { records, policy } }: KnownManager, now: number): LateStep[] {
  return dueSteps(records, policy).flatMap((step) => {
    const { at = Infinity } = step;
    return now > at + graceMs ? [{ ...step, at }] : [];
  });
}

function overdue(manager: KnownManager, now: number): Fault[] {
  const late = lateSteps(manager, now).filter(({ step }) => step !== "announce");
  return late.map(({ kid, use, step, at }) => ({
    severity: "error",
    code: "STEP_OVERDUE",
    text: `The ${useText(use)} "${kidText(kid)}" should have ${step === "activate" ? "become active" : "been removed"} at ${timeText(at)}, ${relativeText(at, now)}.`,
    kid,
    since: at,
    remedy: "Mend the other faults; jwksd then takes the step by itself. This command shows the steps ahead:",
    command: "jwksd plan",
    guide: "alerts.md#jwksdstepoverdue",
  }));
}

function noSuccessor(manager: KnownManager, now: number): Fault[] {
  const late = lateSteps(manager, now).filter(({ step }) => step === "announce");
  return late.map(({ kid, use, at }) => ({
    severity: "error",
    code: "NO_SUCCESSOR",
    text: `The successor of the ${useText(use)} "${kidText(kid)}" should have been announced at ${timeText(at)}, ${relativeText(at, now)}, and is not there.`,
    kid,
    since: at,
    remedy: "Mend the other faults; jwksd then announces one by itself. This command announces one now:",
    command: use === "sig" ? "jwksd rotate" : "jwksd keys announce --use enc",
    guide: "alerts.md#jwksdnosuccessor",
  }));
}

/** Steps whose wait has not begun. In every rotation, each step is one for a moment. */
function waiting(view: StoreView): Fault[] {
  return waitsOf(view)
    .filter(({ since }) => view.now > since + graceMs)
    .map(({ text, kid, since }) => warningOf("STEP_WAITS", text, "Publish the copy again.", { kid, since }));
}

/** Processes that do not publish the newest revision, although it has been there for a while. */
function behind({ health }: KnownManager, view: StoreView): Fault[] {
  const { revisionSince = Infinity } = health.store;
  if (view.now <= revisionSince + graceMs) return [];
  return view.processes
    .filter((line) => !hasFollowed(line, view.document.revision, view))
    .map((line) => warningOf("REPLICA_BEHIND", lateText(line, view), "Look at the log of that replica."));
}

function warningOf(code: string, text: string, remedy: string, more: Pick<Fault, "kid" | "since"> = {}): Fault {
  return { severity: "warning", code, text, ...listing(remedy), ...more };
}

const useText = (use: string): string => (use === "sig" ? "signing key" : "encryption key");

/** A message as the end of a sentence. */
const ended = (message: string): string => withFlags(/[.!?]$/.test(message) ? message : `${message}.`);
