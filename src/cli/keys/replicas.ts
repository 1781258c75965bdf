import { Command } from "../command.ts";
import { printable } from "../../base/printable.ts";
import type { PresenceRecord } from "../../rotation/custody/presence.ts";
import { durationText, kidText } from "../../base/format.ts";
import {
  type TargetStatus,
  type StoreView,
  targetStatus,
  lastWordText,
  publishesText,
  replicaStatus,
  unlistedText,
  unsignedTexts,
  waitsOf,
} from "../../rotation/explain/replicas.ts";
import { type Io, iso, print, printJson } from "../io.ts";
import { aligned, indented, printParagraphs, terminalOf } from "../terminal.ts";
import { type Flags, addStoreSettings, readStore } from "./open-keys.ts";

export function commandOf(io: Io): Command {
  return addStoreSettings(new Command("replicas"))
    .notes(`
A process that can write to the store keeps a presence record there, and renews
it six times per --max-stale-seconds. A process whose record is older than that
is not ready, does not sign, and is not listed. No step waits for a process.

A target that jwksd publish writes is served without a process, so each step
waits until the target has it, or until jwksd targets forget removes the target.
The store's MAC covers its keys and targets, but no presence records.

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
      replicas: processes.map((line) => replicaJson(line, found)),
      targets: targets.map((target) => ({ ...target, at: iso(target.at) })),
      waits: waitsJson(found),
    });
  }
  const { columns } = terminalOf(io);
  const lines = [...table(found), ...indented(unlistedText, columns, 0)];
  print(io, [...lines, ...targetsTable(targets, found)].join("\n"));
  printParagraphs(io, waitTexts(found));
}

function table(found: StoreView): string[] {
  const { processes } = found;
  if (processes.length === 0) return ["No replica is listed."];
  const isTwin = ({ name }: PresenceRecord): boolean => processes.filter((other) => other.name === name).length > 1;
  const rows = processes.map((line) => {
    const status = replicaStatus(line, found);
    const { id, name, kid = "", signing, version = "" } = status;
    return [
      // The former process of a name, or two that have it.
      `${printable(name)}${isTwin(line) ? ` (${id.slice(0, 8)})` : ""}`,
      publishesText(status),
      lastWordText(line, found),
      signing === "signs" ? `signs with ${kidText(kid)}` : unsignedTexts[signing],
      printable(version),
    ];
  });
  return aligned([["REPLICA", "PUBLISHES", "LAST CHECK-IN", "SIGNS", "VERSION"], ...rows]);
}

function targetsTable(targets: readonly TargetStatus[], { now }: StoreView): string[] {
  if (targets.length === 0) return [];
  const rows = targets.map(({ name, revision, at, isBehind }) => [
    printable(name),
    `${revision === 0 ? "not written yet" : `revision ${revision}`}${isBehind ? ", lacks a step" : ""}`,
    `${durationText(now - at)} ago`,
  ]);
  return ["", ...aligned([["TARGET", "HAS", "READ BACK"], ...rows])];
}

/** The steps whose wait has not begun, and the targets for which they wait. */
export const waitTexts = (found: StoreView): string[] => waitsOf(found).map(({ text }) => text);

/** The same for `--json`. */
export const waitsJson = (found: StoreView): object[] =>
  waitsOf(found).map((wait) => Object.assign({}, wait, { since: iso(wait.since) }));

export function replicaJson(line: PresenceRecord, view: StoreView): object {
  const status = replicaStatus(line, view);
  return { ...status, lastCheckInAt: iso(status.lastCheckInAt), staleAt: iso(status.staleAt) };
}
