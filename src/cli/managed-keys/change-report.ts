// Prints changes to keys, as text and as JSON.

import { kidText, relativeText, timeText } from "../../base/format.ts";
import { impactOf } from "../../rotation/explain/impact.ts";
import { planVerbs } from "../../rotation/explain/plan-scale.ts";
import { type RotationPlan, planRotation, planKeyName } from "../../rotation/explain/plan.ts";
import type { Changed } from "../../rotation/manager/store-access.ts";
import { type AuditEvent, type KeyRecord, recordTimes, uriOf } from "../../rotation/rules/key-records.ts";
import { type Io, iso, print } from "../io.ts";
import { indented, terminalOf } from "../terminal.ts";
import { type CatchUp, catchUpJson, catchUpLines } from "./wait-for-replicas.ts";

export interface Report {
  readonly isDry: boolean;
  /** Note about how the real run will differ from the dry run. */
  readonly note: string | undefined;
  readonly unchanged: string | undefined;
  readonly change: Changed;
  readonly remarks: readonly string[];
  /** Effects on keys in HSMs and key services. */
  readonly external: readonly string[];
  /** Replicas that have caught up with the change, or `undefined` if the command did not wait for them. */
  readonly catchUp?: CatchUp | undefined;
  /** Object for the operator to keep. */
  readonly kept?: object | undefined;
}

/** Returns the effects of a change. */
export function effectsOf({ change: { before, records, seen, document }, remarks, external }: Report): string[] {
  return [...impactOf(before, records, document.policy, seen.now), ...remarks, ...external];
}

/** Prints a change, its effects and the next steps. */
export function printChange(io: Io, report: Report, flags: { readonly json?: true }): void {
  const { records, document, seen } = report.change;
  const effects = effectsOf(report);
  const ahead = planRotation(records, document.policy, seen.now);
  print(io, flags.json === true ? asJson(report, effects, ahead) : asText(io, report, effects, ahead));
}

/** Prints which replicas and targets have caught up with a change. Prints nothing if there are none. */
export function printCatchUp(io: Io, catchUp: CatchUp): void {
  if (catchUp.view.processes.length + catchUp.targets.length === 0) return;
  const { columns } = terminalOf(io);
  print(io, section("Replicas", catchUpLines(catchUp), columns).join("\n"));
}

function asText(
  io: Io,
  { isDry, note, unchanged, change: { events } }: Report,
  effects: readonly string[],
  ahead: RotationPlan,
): string {
  const { columns } = terminalOf(io);
  const next = nextSteps(ahead).map(
    (step) =>
      `${timeText(step.at)}, ${relativeText(step.at, ahead.now)}: ${planVerbs[step.action]} ${step.use} ${planKeyName(ahead, step)}`,
  );
  const lines = [
    ...(isDry ? [`Dry run: nothing was changed.${note === undefined ? "" : ` ${note}`}`, ""] : []),
    ...(events.length === 0 ? [`There is nothing to change.${unchanged === undefined ? "" : ` ${unchanged}`}`] : []),
    ...(isDry && events.length > 0 ? ["Without --dry-run, the audit log would contain:"] : []),
    ...events.map((event) => `${eventText(event)}: ${event.reason}`),
    ...section("Effects", effects, columns),
    ...section("Next steps", next, columns),
  ];
  return lines.join("\n");
}

/** Describes an event: its type and its key. A policy change has no key. */
export const eventText = ({ type, use, kid }: AuditEvent): string =>
  kid === undefined ? type : `${type} ${use} ${kidText(kid)}`;

function section(title: string, items: readonly string[], columns: number): string[] {
  if (items.length === 0) return [];
  const lines = items.flatMap((item) =>
    indented(item, columns, 4).map((line, index) => (index === 0 ? `  - ${line.slice(4)}` : line)),
  );
  return ["", `${title}:`, ...lines];
}

function asJson(
  { isDry, note, change: { before, records, events, document }, kept, catchUp }: Report,
  effects: readonly string[],
  ahead: RotationPlan,
): string {
  const states = new Map(before.map(({ kid, state }) => [kid, state]));
  const changed = records.filter((record) => !before.includes(record));
  const json = {
    dryRun: isDry,
    ...(note !== undefined && isDry && { note }),
    changes: changed.map((record) => publicRecord(record, { stateBefore: states.get(record.kid) ?? null })),
    events: events.map((event) => ({ ...event, at: iso(event.at) })),
    policy: document.policy,
    effects,
    ...(kept !== undefined && { keep: kept }),
    replicas: catchUp === undefined ? null : catchUpJson(catchUp),
    next: nextSteps(ahead).map(({ at, use, kid, action }) => ({ at: iso(at), use, kid: kid ?? null, action })),
  };
  // A report to keep is printed on one line, so that several can be collected in one file.
  return JSON.stringify(json, undefined, kept === undefined ? 2 : undefined);
}

/**
 * Returns the steps up to the end of the rotation in progress. If no rotation is in progress, returns the steps up to
 * the announcement of the next key.
 */
function nextSteps({ steps }: RotationPlan): RotationPlan["steps"] {
  const first = steps.findIndex(({ action }) => action === "announced");
  return first === -1 ? steps : steps.slice(0, Math.max(first, 1));
}

const times: ReadonlySet<string> = new Set([...recordTimes, "endedAt", "trustedUntil"]);
const waits = ["announceForSeconds", "retireForSeconds", "maxStaleSeconds"];
const printed = new Set(["kid", "use", "state", ...times, "alg", "unannounced", ...waits, "publicJwk", "thumbprint"]);

/**
 * Returns the members of a record that can safely be printed. They are selected by name, so the private key cannot
 * leak.
 */
export function publicRecord(record: KeyRecord, more: object = {}): object {
  const members = Object.entries(record).filter(([name, value]) => printed.has(name) && value !== undefined);
  const uri = uriOf(record);
  return {
    ...Object.fromEntries(
      members.map(([name, value]) => [name, times.has(name) && typeof value === "number" ? iso(value) : value]),
    ),
    ...(uri !== undefined && { uri }),
    ...more,
  };
}
