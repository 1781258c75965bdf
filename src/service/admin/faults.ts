import { durationText, kidText, relativeText, timeText } from "../../base/format.ts";
import { shellWord } from "../../base/printable.ts";
import { type StoreView, hasCaughtUp, behindText, waitsOf } from "../../rotation/explain/replicas.ts";
import type { KnownError } from "../../rotation/manager/types.ts";
import { type DueStep, dueSteps } from "../../rotation/rules/due.ts";
import type { KeyRecord } from "../../rotation/rules/records.ts";
import { policyDifference } from "../config/policy-difference.ts";
import { withFlags } from "../config/setting-names.ts";
import type { KnownManager, KnownWithoutStore } from "../keys/known.ts";
import { fillingText } from "../keys/manager-events.ts";
import type { Known } from "./known.ts";
import { type Remedy, listing, remedyOf } from "./remedies.ts";

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
  const { document, health, processes, unread } = manager;
  const recordOf = (kid: string): KeyRecord | undefined => document.records.find((record) => record.kid === kid);
  const ofKeys = (errors: Readonly<Record<string, KnownError>>, what: (name: string) => string): Fault[] =>
    Object.entries(errors).map(([kid, error]) =>
      failureOf(what(`"${kidText(kid)}"`), error, remedyOf(error.code, recordOf(kid)), { kid }),
    );
  const view = { document, processes, unread, now };
  const faults = [
    unmanaged(manager),
    staleProcess(manager),
    ...ofKeys(
      health.unavailable,
      (name) => `The active key ${name} cannot be opened here, and is published all the same`,
    ),
    ...ofKeys(health.activationBlocked, (name) => `The next key ${name} cannot sign, so the active one stays`),
    clockDiffers(manager),
    ...lateSteps(manager, now),
    ...waiting(view),
    ...behind(manager, view),
    policyDiffers(manager),
    storeFilling(manager),
    ...Object.entries(health.destroyFailed).map(([kid, error]) => {
      const what = `The key "${kidText(kid)}" is gone, and could not be destroyed where it was made`;
      const again = { remedy: "This command tries it again:", command: `jwksd keys destroy ${shellWord(kid)}` };
      return failureOf(what, error, again, { kid, severity: "warning" });
    }),
  ];
  return faults.filter((fault) => fault !== undefined);
}

/** An error, as severe as it can be unless `more` says it. */
function faultOf(code: string, text: string, remedy: Remedy, more: Partial<Fault> = {}): Fault {
  return { severity: "error", code, text, ...remedy, ...more };
}

function failureOf(what: string, { at, code, message }: KnownError, remedy: Remedy, more: Partial<Fault> = {}): Fault {
  return faultOf(code, `${what}: ${ended(message)}`, remedy, { since: at, ...more });
}

function savedSet({ savedAt, outage }: KnownWithoutStore): Fault {
  const what = `The store was not reached since the start, so the set of ${timeText(savedAt)} is published, and nothing is signed`;
  return failureOf(what, outage, remedyOf(outage.code));
}

function refusedFiles(refused: KnownError, pid: number): Fault {
  return failureOf("The key files were refused, and the old keys stay in use", refused, {
    remedy: "Correct the files. They are read again when they change, and after this command:",
    command: `kill -HUP ${pid}`,
    guide: "alerts.md#jwksdupdaterefused",
  });
}

function notReady(why: string): Fault {
  const remedy = { ...listing("Look at the log."), guide: "alerts.md#jwksdnotready" };
  return faultOf("NOT_READY", `This service is not ready: ${ended(why)}`, remedy);
}

function staleProcess({ health: { stale } }: KnownManager): Fault | undefined {
  const remedy = listing("It signs again by itself when the cause is gone.");
  return stale && failureOf("Stale, and not ready", stale, remedy);
}

function policyDiffers({ policyGiven, document }: KnownManager): Fault | undefined {
  const { text, flags } = policyDifference(policyGiven, document.policy);
  if (flags === "") return undefined;
  const remedy = "Leave these settings out, or write them into the store with this command:";
  return faultOf("POLICY_DIFFERS", `${text}.`, { remedy, command: `jwksd policy ${flags}` }, { severity: "warning" });
}

function storeFilling({ health: { store } }: KnownManager): Fault | undefined {
  if (store.filling === undefined) return undefined;
  const text = ended(fillingText(store.filling));
  const remedy = {
    remedy:
      "Before it is full, copy the keys into a store that can hold more, with jwksd store migrate. This command lists them:",
    command: "jwksd keys --all",
    guide: "stores.md#capacity",
  };
  return faultOf("STORE_FILLING", text.charAt(0).toUpperCase() + text.slice(1), remedy, { severity: "warning" });
}

function unmanaged({ health }: KnownManager): Fault | undefined {
  const { lastError, lastSuccessAt = 0 } = health.store;
  const outage = lastError !== undefined && lastError.at > lastSuccessAt ? lastError : undefined;
  const cause = health.failure ?? outage;
  if (cause === undefined) return undefined;
  const what =
    cause.code === "ERR_UPDATE"
      ? "The newest keys could not be published"
      : "Keys cannot be managed, so no step is taken, and the last good keys stay in use";
  return failureOf(what, cause, remedyOf(cause.code));
}

function clockDiffers({ document: { policy }, clockAheadMs: aheadMs }: KnownManager): Fault | undefined {
  if (Math.abs(aheadMs) <= policy.clockSkewSeconds * 1000) return undefined;
  const by = `${durationText(aheadMs)} ${aheadMs > 0 ? "behind" : "ahead of"}`;
  const text = `The clock of this machine is ${by} that of the store, more than clockSkewSeconds ${policy.clockSkewSeconds} allows, so this process takes no step and does not sign.`;
  return faultOf("CLOCK_SKEW", text, {
    remedy: "Set the clock of the machine that is wrong. This command says whether this one is synchronized:",
    command: "timedatectl",
    guide: "alerts.md#jwksdclockskew",
  });
}

/** The steps that should have been taken. */
function lateSteps({ document: { records, policy } }: KnownManager, now: number): Fault[] {
  const late = dueSteps(records, policy).filter(({ at = Infinity }) => now > at + graceMs);
  return late.map((step) => lateStep(step, now));
}

function lateStep({ kid, use, step, at: since = 0 }: DueStep, now: number): Fault {
  const key = `${use === "sig" ? "signing key" : "encryption key"} "${kidText(kid)}"`;
  const when = `at ${timeText(since)}, ${relativeText(since, now)}`;
  if (step === "announce") {
    const remedy = {
      remedy: "Mend the other faults; jwksd then announces one by itself. This command announces one now:",
      command: use === "sig" ? "jwksd rotate" : "jwksd keys announce --use enc",
      guide: "alerts.md#jwksdnosuccessor",
    };
    const text = `The successor of the ${key} should have been announced ${when}, and is not there.`;
    return faultOf("NO_SUCCESSOR", text, remedy, { kid, since });
  }
  const remedy = {
    remedy: "Mend the other faults; jwksd then takes the step by itself. This command shows the steps ahead:",
    command: "jwksd plan",
    guide: "alerts.md#jwksdstepoverdue",
  };
  const text = `The ${key} should have ${step === "activate" ? "become active" : "been removed"} ${when}.`;
  return faultOf("STEP_OVERDUE", text, remedy, { kid, since });
}

/** Steps whose wait has not begun. In every rotation, each step is one for a moment. */
function waiting(view: StoreView): Fault[] {
  const late = waitsOf(view).filter(({ since }) => view.now > since + graceMs);
  return late.map(({ text, kid, since }) =>
    faultOf("STEP_BLOCKED", text, listing("Publish the target again."), { severity: "warning", kid, since }),
  );
}

/** Processes that do not publish the newest revision, although it has been there for a while. */
function behind({ health }: KnownManager, view: StoreView): Fault[] {
  const { revisionSince = Infinity } = health.store;
  if (view.now <= revisionSince + graceMs) return [];
  const late = view.processes.filter((line) => !hasCaughtUp(line, view.document.revision, view));
  const remedy = listing("Look at the log of that replica.");
  return late.map((line) => faultOf("REPLICA_BEHIND", behindText(line, view), remedy, { severity: "warning" }));
}

/** A message as the end of a sentence. */
const ended = (message: string): string => withFlags(/[.!?]$/.test(message) ? message : `${message}.`);
