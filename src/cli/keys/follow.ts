import { sleep } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import type { JwksdError } from "../../base/errors.ts";
import type { Changed } from "../../rotation/manager/compare-and-set.ts";
import { printable } from "../../base/printable.ts";
import { type ReplicasAt, runningLeases, lateText } from "../../service/admin/replicas.ts";
import { hasFollowed } from "../../rotation/rules/waits.ts";
import type { Lease } from "../../rotation/store/store.ts";
import { type Io, tell } from "../io.ts";
import type { CommandKeys } from "./open-keys.ts";
import { replicaJson } from "./replicas.ts";

const pollMs = 200;
/** The exit code of a change that is done, but not every replica has followed it. */
export const notFollowed = 3;

/** Who has followed a change. */
export interface Followed {
  readonly replicas: ReplicasAt;
  /** Live replicas that do not publish it yet. */
  readonly late: readonly Lease[];
}

/**
 * Waits until every live replica publishes a change, and sets the exit code if one does not in time. The change stands in any case.
 *
 * @returns `undefined` where nobody waits, or where the store could not be asked
 */
export async function follow(
  { io, custody }: CommandKeys,
  { revision, events }: Changed,
  waitSeconds: number,
): Promise<Followed | undefined> {
  if (waitSeconds === 0 || events.length === 0) return undefined;
  const end = performance.now() + waitSeconds * 1000;
  const show = progress(io);
  try {
    for (;;) {
      const { now, revision: newest, leases: all } = await custody.store.load();
      const leases = runningLeases(all, now);
      const late = leases.filter((lease) => !hasFollowed(lease, revision, newest));
      const leftMs = end - performance.now();
      if (late.length === 0 || leftMs <= 0) {
        if (late.length > 0) io.exitCode = notFollowed;
        return { replicas: { now, revision: newest, leases }, late };
      }
      show(`waiting for ${late.map(({ name }) => printable(name)).join(", ")} (${Math.ceil(leftMs / 1000)} s)`);
      await sleep(Math.min(pollMs, leftMs), systemClock);
    }
  } catch (error) {
    const { message, code } = error as JwksdError;
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
  let shown = "";
  return (text) => {
    const line = text.slice(0, (stderr.columns ?? 80) - 1);
    if (line !== shown) stderr.write(`\r\u{1b}[K${line}`);
    shown = line;
  };
}

/** The replicas that do not publish the change yet, and what operators should expect of them. */
export function followedLines({ replicas, late }: Followed, { records }: Changed): string[] {
  const count = replicas.leases.length;
  return [
    `${count - late.length} of ${count} publish the change.`,
    ...late.map((lease) => lateText(lease, records, replicas)),
  ];
}

export function followedJson(followed: Followed | undefined) {
  if (followed === undefined) return null;
  const { replicas, late } = followed;
  return { count: replicas.leases.length, late: late.map((lease) => replicaJson(lease, replicas)) };
}
