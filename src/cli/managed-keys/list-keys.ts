import { kidText, relativeText, timeText } from "../../base/format.ts";
import { aftermath } from "../../rotation/explain/impact.ts";
import { planVerbs } from "../../rotation/explain/plan-scale.ts";
import { type PlanStep, planRotation } from "../../rotation/explain/plan.ts";
import {
  type KeyRecord,
  isLive,
  isDecommissioned,
  isRotating,
  keyUses,
  stateSince,
  uriOf,
} from "../../rotation/rules/key-records.ts";
import { rotatingSince } from "../../rotation/rules/rotation-mode-intervals.ts";
import { Command } from "../command.ts";
import { type Io, iso, print, printJson } from "../io.ts";
import { aligned, indented, printParagraphs, terminalOf } from "../terminal.ts";
import { publicRecord } from "./change-report.ts";
import { type Flags, addStoreSettings, readStore } from "./open-keys.ts";
import { waitTexts, waitsJson } from "./replicas.ts";

type ListFlags = Flags & { readonly all?: true; readonly json?: true };

export function listCommand(io: Io): Command {
  const command = new Command("list").description(`List the managed keys (the same as "jwksd keys").`);
  return addStoreSettings(command.option("--all", "include removed and revoked keys"))
    .notes(`
If a key is in an HSM or key service, its URI is on the next line (--json: uri).
A key's next step follows from the store's policy (see jwksd policy).`)
    .allowExcessArguments()
    .action((flags: ListFlags) => {
      // `jwksd keys` has no arguments, so an argument must be the name of an unknown command.
      const [unknown] = command.args;
      if (unknown !== undefined)
        command.error(`error: unknown command '${unknown}'; to list the commands, run: jwksd help keys`);
      return listKeys(io, flags);
    });
}

/** Prints the keys, each with its state, the time at which it entered that state, and the next step. */
async function listKeys(io: Io, flags: ListFlags): Promise<void> {
  const found = await readStore(io, flags);
  const { document, isVerified, now } = found;
  const { records, policy } = document;
  const ahead = planRotation(records, policy, now);
  const still = aftermath(records, policy, now);
  const listed = keyUses.flatMap((use) =>
    records.filter((record) => record.use === use && (flags.all === true || isLive(record))),
  );
  const rows = listed.map((record) => ({ record, next: ahead.steps.find(({ kid }) => kid === record.kid) }));
  const since = isRotating(records) && !isDecommissioned(records) ? (rotatingSince(records, now) ?? now) : undefined;
  if (flags.json === true) {
    return printJson(io, {
      verified: isVerified,
      decommissioned: isDecommissioned(records),
      keys: rows.map(({ record, next = null }) =>
        publicRecord(record, { since: iso(stateSince(record)), next: next && stepJson(next) }),
      ),
      waits: waitsJson(found),
      rotatingSince: since === undefined ? null : iso(since),
      effects: still,
    });
  }
  const { columns } = terminalOf(io);
  const lines = listed.length === 0 && !isDecommissioned(records) ? indented(noKeys, columns, 0) : keyTable(rows, now);
  const ended = records.length - records.filter(isLive).length;
  const hidden = flags.all !== true && ended > 0 ? `Removed or revoked keys: ${ended}; to list them, add --all.` : "";
  const off = isDecommissioned(records)
    ? "The issuer has been decommissioned: its keys no longer sign, and no new keys are generated."
    : "Rotation mode: off.";
  const mode =
    since === undefined ? off : `Rotation mode: on since ${timeText(since)}; caches keep the set for 5 minutes.`;
  print(io, [...lines, "", ...indented(`${mode} ${hidden}`.trim(), columns, 0)].join("\n"));
  printParagraphs(io, [...waitTexts(found), ...still]);
}

const noKeys =
  'There are no keys. If there were keys before, see "A lost store" in docs/emergencies.md. If not, start jwksd serve, which generates the first key.';

function stepJson({ at, action, reason, bound }: PlanStep) {
  return { action, at: iso(at), reason, bound };
}

/** Returns the table of keys. Each kid and each URI is on its own unwrapped line, so that it can be copied. */
function keyTable(
  rows: readonly { readonly record: KeyRecord; readonly next: PlanStep | undefined }[],
  now: number,
): string[] {
  // Times are shown to the minute, and "in 1 h" instead of "in 1 h 10 min".
  const when = (time: number): string =>
    `${timeText(time).slice(0, 16)}, ${relativeText(time, now).replace(/(\d+ \w+) \d+ \w+/, "$1")}`;
  const [heading = "", ...lines] = aligned([
    ["USE", "STATE", "SINCE (UTC)", "NEXT STEP (UTC)"],
    ...rows.map(({ record, next }) => [
      record.use,
      record.state,
      when(stateSince(record)),
      next === undefined ? "-" : `${planVerbs[next.action]} ${when(next.at)}`,
    ]),
  ]);
  return [
    heading,
    ...rows.flatMap(({ record }, index) => [
      lines[index] ?? "",
      `     ${kidText(record.kid)}`,
      ...locationCells(record),
    ]),
  ];
}

/**
 * Returns the private key's location, unless it is in the store. For a removed or revoked key, returns the former
 * location.
 */
function locationCells(record: KeyRecord): string[] {
  const uri = uriOf(record);
  return uri === undefined ? [] : [`     ${isLive(record) ? "in" : "was in"} ${kidText(uri)}`];
}
