import { sleep } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { asJwksdError } from "../../base/errors.ts";
import { someOf } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import { type PresenceRecord, revisionsBehind } from "../../rotation/custody/presence.ts";
import { type StoreView, caughtUpText, hasCaughtUp, behindText, unreadTexts } from "../../rotation/explain/replicas.ts";
import type { Changed } from "../../rotation/manager/store-access.ts";
import { lateTargets } from "../../rotation/rules/targets.ts";
import type { TargetRecord } from "../../rotation/rules/waits.ts";
import { type Io, tell } from "../io.ts";
import { type CommandKeys, viewOf } from "./open-keys.ts";
import { replicaJson } from "./replicas.ts";

const pollMs = 200;
/** The exit code of a change that is done, but not every replica has followed it. */
export const notFollowed = 3;

/** Who has followed a change. */
export interface Followed {
  readonly view: StoreView;
  /** The processes that do not publish the change yet. */
  readonly late: readonly PresenceRecord[];
  /** The targets that were not written since. */
  readonly targets: readonly TargetRecord[];
}

/**
 * Waits until every process that has a line in the store publishes a change, and sets the exit code if one does not in time. The change stands
 * in any case. A process that refuses the store, because an older backup was restored, does not follow: it is told, and nobody waits for it.
 *
 * @returns `undefined` where the store could not be asked, or there is nothing to tell
 */
export async function follow(
  { io, access }: Pick<CommandKeys, "io" | "access">,
  { document: { revision }, events }: Changed,
  waitSeconds: number,
): Promise<Followed | undefined> {
  if (events.length === 0) return undefined;
  const end = performance.now() + waitSeconds * 1000;
  const show = progress(io);
  try {
    for (;;) {
      const view = await viewOf(access);
      const late = view.processes.filter((line) => !hasCaughtUp(line, revision, view));
      const awaited = late.filter((line) => revisionsBehind(line, view.document) !== undefined);
      const targets = lateTargets(view.document);
      const leftMs = end - performance.now();
      if (awaited.length + targets.length === 0 || leftMs <= 0) {
        if (waitSeconds === 0 && awaited.length === late.length) return undefined;
        if (late.length + targets.length > 0) io.exitCode = notFollowed;
        return { view, late, targets };
      }
      show(
        `waiting for ${someOf([...awaited, ...targets], ({ name }) => printable(name))} (${Math.ceil(leftMs / 1000)} s)`,
      );
      await sleep(Math.min(pollMs, leftMs), systemClock);
    }
  } catch (error) {
    const { message, code } = asJwksdError(error);
    tell(io, `the change is done; who follows is not known, because the store cannot be asked: ${message} [${code}]`);
    io.exitCode = notFollowed;
    return undefined;
  } finally {
    show("");
  }
}

/** One line on a terminal that changes. */
function progress({ stderr }: Io): (text: string) => void {
  if (stderr.isTTY !== true) return () => {};
  let written = "";
  return (text) => {
    const line = text.slice(0, (stderr.columns ?? 80) - 1);
    if (line !== written) stderr.write(`\r\u{1b}[K${line}`);
    written = line;
  };
}

/** Who follows, and what operators should expect of those who do not. */
export function followedLines({ view, late, targets }: Followed): string[] {
  const { length } = view.processes;
  return [
    `${caughtUpText(length - late.length, length)}.`,
    ...unreadTexts(view),
    ...late.map((line) => behindText(line, view)),
    ...targets.map(
      ({ name }) =>
        `The target ${printable(name)} lacks the change, and serves the previous keys until jwksd publish writes it.`,
    ),
  ];
}

export const followedJson = ({ view, late, targets }: Followed): object => ({
  count: view.processes.length,
  late: late.map((line) => replicaJson(line, view)),
  lateTargets: targets.map(({ name }) => name),
  unread: view.unread,
});
