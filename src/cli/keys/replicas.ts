import { Command } from "../command.ts";
import { ConfigError, StateError } from "../../base/errors.ts";
import { printable } from "../../base/printable.ts";
import type { ProcessLine } from "../../rotation/custody/presence.ts";
import { durationText, kidText } from "../../base/format.ts";
import {
  type CopyStatus,
  type StoreView,
  copyStatus,
  lastWordText,
  publishesText,
  replicaStatus,
  unlistedText,
  unsignedTexts,
  waitsOf,
} from "../../rotation/explain/replicas.ts";
import { type Io, iso, print, printJson } from "../io.ts";
import { aligned, indented, printParagraphs, terminalOf } from "../terminal.ts";
import { type CommandKeys, type Flags, addReadSettings, readStore, withKeys } from "./open-keys.ts";

export function commandOf(io: Io): Command {
  const command = new Command("replicas");
  // This command and its subcommand have the same flags.
  return addReadSettings(command.enablePositionalOptions().addCommand(endCopyCommand(io)))
    .notes(`
Each process that may write the store has a line in it, and writes that line
again six times in --max-stale-seconds. A process whose line is older than that
neither signs nor is ready, and is not listed. No step waits for a process. A
copy that jwksd publish wrote is served without a process, so steps wait until
the copy has them, or until jwksd replicas end forgets the copy. The MAC of the
store covers its keys and copies, and no lines.

Examples:
  $ jwksd replicas
  $ jwksd replicas --json | jq '.replicas[] | select(.behind != 0) | .name'`)
    .action((flags: Flags) => replicas(io, flags));
}

async function replicas(io: Io, flags: Flags): Promise<void> {
  const found = await readStore(io, flags);
  const { document, processes, isVerified } = found;
  const copies = document.copies.map((copy) => copyStatus(copy, found));
  if (flags["json"] === true) {
    return printJson(io, {
      verified: isVerified,
      revision: document.revision,
      replicas: processes.map((line) => replicaJson(line, found)),
      copies: copies.map((copy) => ({ ...copy, at: iso(copy.at) })),
      waits: waitsJson(found),
    });
  }
  const { columns } = terminalOf(io);
  const lines = [...table(found), ...indented(unlistedText, columns, 0)];
  print(io, [...lines, ...copiesTable(copies, found)].join("\n"));
  printParagraphs(io, waitTexts(found));
}

function table(found: StoreView): string[] {
  const { processes } = found;
  if (processes.length === 0) return ["No replica is listed."];
  const isTwin = ({ name }: ProcessLine): boolean => processes.filter((other) => other.name === name).length > 1;
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
  return aligned([["REPLICA", "PUBLISHES", "LAST WORD", "SIGNS", "VERSION"], ...rows]);
}

function copiesTable(copies: readonly CopyStatus[], { now }: StoreView): string[] {
  if (copies.length === 0) return [];
  const rows = copies.map(({ name, revision, at, isBehind }) => [
    printable(name),
    `${revision === 0 ? "not written yet" : `revision ${revision}`}${isBehind ? ", lacks a step" : ""}`,
    `${durationText(now - at)} ago`,
  ]);
  return ["", ...aligned([["COPY", "HAS", "READ BACK"], ...rows])];
}

/** The steps whose wait has not begun, and the copies for which they wait. */
export const waitTexts = (found: StoreView): string[] => waitsOf(found).map(({ text }) => text);

/** The same for `--json`. */
export const waitsJson = (found: StoreView): object[] =>
  waitsOf(found).map((wait) => Object.assign({}, wait, { since: iso(wait.since) }));

export function replicaJson(line: ProcessLine, view: StoreView): object {
  const status = replicaStatus(line, view);
  return { ...status, lastWordAt: iso(status.lastWordAt), staleAt: iso(status.staleAt) };
}

function endCopyCommand(io: Io): Command {
  const command = new Command("end")
    .description("Stop waiting for a copy that jwksd publish wrote, because nobody reads it any more.")
    .argument("<name>", "jwksd replicas lists the copies")
    .option("--yes", "confirm that nobody reads the copy");
  return addReadSettings(command)
    .notes(`
While the store names a copy, no key becomes active that the copy lacks.
Afterwards, anybody who still reads the copy refuses the tokens of the next key.
So remove the copy first, wait until caches have forgotten it (7,200 s), and
then end it. A jwksd publish that runs names it again.

Examples:
  $ jwksd replicas
  $ jwksd replicas end s3://example-issuer/cluster-1 --yes`)
    .action((name: string, flags: Flags) => withKeys(io, flags, {}, (keys) => endCopy(keys, name, flags)));
}

/**
 * @throws StateError `ERR_TRANSITION`: there is no such copy
 * @throws ConfigError `ERR_CONFIRMATION`
 */
async function endCopy({ io, access }: CommandKeys, name: string, { yes }: Flags): Promise<void> {
  const { document, now } = await access.read();
  const copy = document.copies.find((copy) => copy.name === name);
  if (copy === undefined) {
    const why = "a process needs no command: when it is stopped, nothing waits for it";
    throw new StateError("ERR_TRANSITION", `there is no copy of this name; jwksd replicas lists the copies; ${why}`);
  }
  const heard = `last read back ${durationText(now - copy.at)} ago`;
  if (yes !== true) {
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was changed; if nobody reads ${printable(name)} any more (${heard}), --yes ends it`,
    );
  }
  await access.change(async ({ document }) => ({ copies: document.copies.filter((copy) => copy.name !== name) }));
  print(io, `Nothing waits for ${printable(name)} any more (${heard}).`);
}
