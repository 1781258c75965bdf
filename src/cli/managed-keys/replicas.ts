import { RotationError } from "../../base/errors.ts";
import { durationText, kidText, someOf } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import type { PresenceRecord } from "../../rotation/custody/presence-records.ts";
import { shortened } from "../../rotation/explain/plan-scale.ts";
import {
  type TargetStatus,
  type StoreView,
  targetStatus,
  lastCheckInText,
  publishesText,
  replicaStatus,
  unlistedText,
  unreadTexts,
  unsignedTexts,
  waitsOf,
} from "../../rotation/explain/replicas.ts";
import { Command } from "../command.ts";
import { type Io, iso, print, printJson } from "../io.ts";
import { aligned, indented, printParagraphs, terminalOf } from "../terminal.ts";
import { type CommandKeys, type Flags, addStoreSettings, readStore, viewOf, withKeys } from "./open-keys.ts";

export function commandOf(io: Io): Command {
  // The command and its subcommand share some flags.
  const command = new Command("replicas").enablePositionalOptions().addCommand(forgetCommand(io));
  return addStoreSettings(command)
    .notes(`
A process that can write to the store keeps a presence record there and renews
it six times per --max-stale-seconds. If a process's record is older than that,
the process is not ready, does not sign, and is not listed. No step waits for a
process. To remove a process that is no longer running but is still listed, run
jwksd replicas forget.

A jwksd publish target is served even when no process is running, so each step
waits until the target has received it, or until jwksd targets forget removes
the target. The store's MAC covers its keys and targets, but not the presence
records.

Examples:
  $ jwksd replicas
  $ jwksd replicas --json | jq '.replicas[] | select(.behind != 0) | .name'`)
    .action((flags: Flags) => replicas(io, flags));
}

async function replicas(io: Io, flags: Flags): Promise<void> {
  const found = await readStore(io, flags);
  const { document, processes, isVerified } = found;
  const targets = document.targets.map((target) => targetStatus(target, found));
  if (flags["json"] === true) {
    return printJson(io, {
      verified: isVerified,
      revision: document.revision,
      replicas: processes.map((record) => replicaJson(record, found)),
      unread: found.unread,
      targets: targets.map((target) => ({ ...target, at: iso(target.at) })),
      waits: waitsJson(found),
    });
  }
  const { columns } = terminalOf(io);
  const notes = [...unreadTexts(found), unlistedText].flatMap((text) => indented(text, columns, 0));
  const lines = [...replicaTable(found), ...notes];
  print(io, [...lines, ...targetsTable(targets, found)].join("\n"));
  printParagraphs(io, waitTexts(found));
}

/** Shortens an id to the part that distinguishes replicas with the same name. */
const shortId = (id: string): string => printable(id.slice(0, 8));

/** Shortens text from a presence record, so that one long value does not widen the whole column. */
const inColumn = (text: string): string => shortened(text, 45);

function replicaTable(found: StoreView): string[] {
  const { processes } = found;
  if (processes.length === 0) return ["No replicas are listed."];
  const counts = new Map<string, number>();
  for (const { name } of processes) counts.set(name, (counts.get(name) ?? 0) + 1);
  const rows = processes.map((record) => {
    const status = replicaStatus(record, found);
    const { id, name, kid = "", signing, version = "" } = status;
    const shown = inColumn(printable(name));
    return [
      // A restarted process has two records for a while, and two processes may have the same name.
      `${shown}${(counts.get(name) ?? 0) > 1 || shown !== printable(name) ? ` (${shortId(id)})` : ""}`,
      publishesText(status),
      lastCheckInText(record, found),
      signing === "signs" ? `signs with ${inColumn(kidText(kid))}` : unsignedTexts[signing],
      inColumn(printable(version)),
    ];
  });
  return aligned([["REPLICA", "PUBLISHES", "LAST CHECK-IN", "SIGNS", "VERSION"], ...rows]);
}

function targetsTable(targets: readonly TargetStatus[], { now }: StoreView): string[] {
  if (targets.length === 0) return [];
  const rows = targets.map(({ name, revision, at, isBehind }) => [
    printable(name),
    `${revision === 0 ? "not written yet" : `revision ${revision}`}${isBehind ? ", behind" : ""}`,
    `${durationText(now - at)} ago`,
  ]);
  return ["", ...aligned([["TARGET", "HAS", "READ BACK"], ...rows])];
}

/** Describes the steps whose waiting period has not begun, and the targets that they are waiting for. */
export const waitTexts = (found: StoreView): string[] => waitsOf(found).map(({ text }) => text);

/** Returns the same information as `waitTexts`, for `--json`. */
export const waitsJson = (found: StoreView): object[] =>
  waitsOf(found).map((wait) => Object.assign({}, wait, { since: iso(wait.since) }));

/** Returns the status of a replica for `--json`. */
export function replicaJson(record: PresenceRecord, view: StoreView): object {
  const status = replicaStatus(record, view);
  return { ...status, lastCheckInAt: iso(status.lastCheckInAt), staleAt: iso(status.staleAt) };
}

function forgetCommand(io: Io): Command {
  const command = new Command("forget")
    .description("Remove the presence record of a process that is no longer running.")
    .argument(
      "<replica>",
      "the replica's name or, if several replicas have that name, its id (to list both, run: jwksd replicas)",
    );
  return addStoreSettings(command)
    .notes(`
A process removes its record when it is stopped. If a process was killed, or a
backup was restored, the record stays listed for --max-stale-seconds; until
then, jwksd_replicas counts it as behind. If the process still runs, it writes
its record again at its next check-in.

Examples:
  $ jwksd replicas
  $ jwksd replicas forget login-2`)
    .action((replica: string, flags: Flags) => withKeys(io, flags, {}, (keys) => forget(keys, replica)));
}

/** Removes a presence record. @throws RotationError `ERR_TRANSITION` unless exactly one replica matches */
async function forget({ io, access }: CommandKeys, replica: string): Promise<void> {
  const view = await viewOf(access);
  const named = view.processes.filter(({ name }) => printable(name) === replica);
  const found = named.length > 0 ? named : view.processes.filter(({ id }) => shortId(id) === replica || id === replica);
  const [record] = found;
  if (record === undefined || found.length > 1) {
    const ids = someOf(found, ({ id }) => shortId(id));
    const problem =
      record === undefined
        ? "there is no replica with this name or id"
        : `${found.length} replicas have this name; use one of these ids: ${ids}`;
    throw new RotationError("ERR_TRANSITION", `${problem}; to list all replicas, run: jwksd replicas`);
  }
  await access.forget([record.id]);
  const checkIn = lastCheckInText(record, view);
  print(io, `Removed the presence record of ${printable(record.name)} (last check-in ${checkIn}).`);
}
