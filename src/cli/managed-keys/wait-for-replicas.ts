import { sleep } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { asJwksdError } from "../../base/errors.ts";
import { maxNamed, someOf } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import { type PresenceRecord, revisionsBehind } from "../../rotation/custody/presence-records.ts";
import { type StoreView, caughtUpText, hasCaughtUp, behindText, unreadTexts } from "../../rotation/explain/replicas.ts";
import type { Changed } from "../../rotation/manager/store-access.ts";
import { lateTargets } from "../../rotation/rules/target-records.ts";
import type { TargetRecord } from "../../rotation/rules/waits.ts";
import { type Io, printNotice } from "../io.ts";
import { type CommandKeys, viewOf } from "./open-keys.ts";
import { replicaJson } from "./replicas.ts";

const pollMs = 200;
/** Exit code if the change was made but not every replica has caught up. */
export const notCaughtUp = 3;

/** The replicas and targets that have caught up with a change, and those that are behind. */
export interface CatchUp {
  readonly view: StoreView;
  /** Processes that have not published the change yet. */
  readonly late: readonly PresenceRecord[];
  /** Targets that have not received the change yet. */
  readonly targets: readonly TargetRecord[];
}

/**
 * Waits until every process with a presence record publishes a change. If one does not do so in time, sets the exit
 * code; the change remains in effect. A process that refuses to use the store because an older backup was restored will
 * never catch up, so it is reported but not waited for.
 *
 * @returns `undefined` if the store could not be read or there is nothing to report
 */
export async function waitForReplicas(
  { io, access }: Pick<CommandKeys, "io" | "access">,
  { document: { revision }, events }: Changed,
  waitSeconds: number,
): Promise<CatchUp | undefined> {
  if (events.length === 0) return undefined;
  const end = performance.now() + waitSeconds * 1000;
  const showProgress = progressLine(io);
  try {
    for (;;) {
      const view = await viewOf(access);
      const late = view.processes.filter((record) => !hasCaughtUp(record, revision, view));
      const awaited = late.filter((record) => revisionsBehind(record, view.document) !== undefined);
      const targets = lateTargets(view.document);
      const leftMs = end - performance.now();
      if (awaited.length + targets.length === 0 || leftMs <= 0) {
        if (waitSeconds === 0 && awaited.length === late.length) return undefined;
        if (late.length + targets.length > 0) io.exitCode = notCaughtUp;
        return { view, late, targets };
      }
      showProgress(
        `waiting for ${someOf([...awaited, ...targets], ({ name }) => printable(name))} (${Math.ceil(leftMs / 1000)} s)`,
      );
      await sleep(Math.min(pollMs, leftMs), systemClock);
    }
  } catch (error) {
    const { message, code } = asJwksdError(error);
    printNotice(
      io,
      `the change was made, but jwksd cannot read the store to find out which replicas have it: ${message} [${code}]`,
    );
    io.exitCode = notCaughtUp;
    return undefined;
  } finally {
    showProgress("");
  }
}

/** Creates a function that shows a line on a terminal, replacing the previous one. */
export function progressLine({ stderr }: Io): (text: string) => void {
  if (stderr.isTTY !== true) return () => {};
  let written = "";
  return (text) => {
    const line = text.slice(0, (stderr.columns ?? 80) - 1);
    if (line !== written) stderr.write(`\r\u{1b}[K${line}`);
    written = line;
  };
}

/** Reports how many replicas have caught up, and what to expect from the others. */
export function catchUpLines({ view, late, targets }: CatchUp): string[] {
  const { length } = view.processes;
  const more = late.length - maxNamed;
  return [
    `${caughtUpText(length - late.length, length)}.`,
    ...unreadTexts(view),
    ...late.slice(0, maxNamed).map((record) => behindText(record, view)),
    ...(more > 0 ? [`${more} more ${more === 1 ? "is" : "are"} behind; to list them, run jwksd replicas.`] : []),
    ...targets.map(
      ({ name }) =>
        `The target ${printable(name)} has not received the change yet; it serves the previous keys until it is updated by jwksd publish.`,
    ),
  ];
}

export const catchUpJson = ({ view, late, targets }: CatchUp): object => ({
  count: view.processes.length,
  late: late.map((record) => replicaJson(record, view)),
  lateTargets: targets.map(({ name }) => name),
  unread: view.unread,
});
