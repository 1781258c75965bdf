import { readFile, stat, writeFile } from "node:fs/promises";
import { IoError } from "../../base/errors.ts";
import { unlessMissing, writing } from "../../base/file-errors.ts";
import { aftermath } from "../../rotation/explain/impact.ts";
import { type RotationPlan, planRotation } from "../../rotation/explain/plan.ts";
import type { Interval } from "../../rotation/rules/rotation-mode-intervals.ts";
import { count } from "../argument-parsers.ts";
import { Command } from "../command.ts";
import { type Io, iso, print, printJson, printNotice } from "../io.ts";
import { printParagraphs, terminalOf } from "../terminal.ts";
import { type Flags, addStoreSettings, readStore } from "./open-keys.ts";
import { planSvg } from "./plan-svg.ts";
import { planPicture } from "./plan-terminal.ts";
import { waitTexts, waitsJson } from "./replicas.ts";

type PlanFlags = Flags & { readonly svg?: string; readonly days?: number; readonly json?: true };

export function commandOf(io: Io): Command {
  const command = new Command("plan")
    .option(
      "--days <days>",
      "number of days to plan (default: enough to complete the next rotation of both the signing keys and the encryption keys)",
      count,
    )
    .option("--svg <file>", "also write the chart to an SVG file; overwrites an existing SVG file");
  return addStoreSettings(command)
    .notes(`
The plan shows what jwksd serve will do if no command changes the keys. If a
step is waiting for a target, the plan names the target and assumes that it
receives the step now. This command does not change anything. It prints colors
only in a terminal, and only if NO_COLOR is not set. To try another policy, run
jwksd policy --dry-run.

Examples:
  $ jwksd plan
  $ jwksd plan --svg rotation.svg                   for a runbook, light or dark
  $ jwksd plan --days 365`)
    .action((flags: PlanFlags) => showPlan(io, flags));
}

async function showPlan(io: Io, flags: PlanFlags): Promise<void> {
  const found = await readStore(io, flags);
  const { document, owner, isVerified, now } = found;
  const { records, policy } = document;
  const until = flags.days === undefined ? undefined : now + flags.days * 86_400_000;
  const ahead = planRotation(records, policy, now, until);
  if (records.length === 0)
    printNotice(io, `the store has no keys for ${owner.issuer}; this is the plan for the first start`);
  const still = aftermath(records, policy, now);
  const title = `Key rotation for ${owner.issuer}`;
  if (flags.svg !== undefined) await write(flags.svg, planSvg(ahead, title));
  if (flags.json === true)
    return printJson(io, { verified: isVerified, ...asJson(ahead), effects: still, waits: waitsJson(found) });
  print(io, planPicture(ahead, terminalOf(io)));
  printParagraphs(io, [...waitTexts(found), ahead.verifiers, ...still]);
  if (flags.svg !== undefined) print(io, `\nwrote ${flags.svg}`);
}

const interval = ({ from, to }: Interval) => ({ from: iso(from), to: to === undefined ? null : iso(to) });

function asJson({ now, until, steps, segments, rotation, verifiers }: RotationPlan) {
  return {
    now: iso(now),
    until: iso(until),
    steps: steps.map((step) => ({ ...step, at: iso(step.at), kid: step.kid ?? null })),
    segments: segments.map((segment) => ({ ...segment, ...interval(segment), kid: segment.kid ?? null })),
    rotationMode: rotation.map(interval),
    verifiers,
  };
}

/** Writes an SVG file. Overwrites only SVG files, so a mistyped file name cannot destroy anything else. */
const write = (file: string, text: string): Promise<void> =>
  writing(file, async () => {
    const found = await unlessMissing(stat(file));
    if (found?.isFile() === true && found.size > 0 && !(await readFile(file, "latin1")).startsWith("<svg ")) {
      throw new IoError(
        "ERR_FILE_EXISTS",
        `${file} exists and is not an SVG file; choose another name, or remove the file`,
      );
    }
    await writeFile(file, text);
  });
