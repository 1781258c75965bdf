import type { Command } from "commander";
import { systemClock } from "../clock.ts";
import { ConfigError } from "../errors.ts";
import type { Change } from "../rotation/advance.ts";
import { effects } from "../rotation/effects.ts";
import { type RotationPlan, plan, planKeyName } from "../rotation/plan.ts";
import { transact } from "../rotation/transact.ts";
import { kidText, relativeText, timeText } from "../rotation/words.ts";
import { planVerbs } from "../server/plan-scale.ts";
import { indented, terminalOf } from "../server/terminal.ts";
import type { KeyRecord } from "../store/store.ts";
import { type Flags, type OpenKeys, addStoreSettings, recordsOf } from "./managed-keys.ts";

/** Flags of every command that changes keys. */
export interface ChangeFlags extends Flags {
  readonly dryRun?: true;
  readonly yes?: true;
  readonly force?: true;
  readonly json?: true;
}

export interface ChangeOptions {
  readonly flags: ChangeFlags;
  /** It may break verifications, so it asks for `--yes`. */
  readonly breaks: boolean;
  /** What a dry run cannot show as it will be. */
  readonly note?: string | undefined;
}

type Decide = (records: readonly KeyRecord[], now: number) => Change | Promise<Change>;

/** Gives a command the flags of every change. */
export function addChangeFlags(command: Command, { force = false, yes = false } = {}): Command {
  if (force) command.option("--force", "do it although it is too early, and breaks verifications; needs --yes");
  if (force || yes) command.option("--yes", "do it, knowing which verifications it breaks");
  return addStoreSettings(command.option("--dry-run", "print the exact change and what it means, and change nothing"));
}

/**
 * Changes keys by compare-and-set, and prints the change, what it means for verifiers, and what happens next.
 *
 * @throws ConfigError `ERR_CONFIRMATION`: it breaks verifications, and `--yes` is not given; the message says what it breaks
 * @throws what `decide` throws
 */
export async function changeKeys(
  { store, policy }: OpenKeys,
  { flags, breaks, note }: ChangeOptions,
  decide: Decide,
): Promise<void> {
  const isDry = flags.dryRun === true;
  let now = systemClock.now();
  let before = await recordsOf(store);
  const preview = await decide(before, now);
  if (breaks && !isDry && flags.yes !== true) {
    const meaning = effects(before, preview.records, policy, now).map((line) => `\n- ${line}`);
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was changed, because this may break verifications; --yes does it:${meaning.join("")}\n`,
    );
  }
  const change = isDry
    ? preview
    : await transact(
        store,
        (records) => {
          now = systemClock.now();
          before = records;
          return decide(records, now);
        },
        { clock: systemClock },
      );
  const ahead = plan(change.records, policy, now);
  const told = { isDry, note, change, meaning: effects(before, change.records, policy, now), ahead };
  console.log(flags.json === true ? asJson(told, before) : asText(told));
}

interface Told {
  readonly isDry: boolean;
  readonly note: string | undefined;
  readonly change: Change;
  readonly meaning: readonly string[];
  readonly ahead: RotationPlan;
}

function asText({ isDry, note, change: { events }, meaning, ahead }: Told): string {
  const { columns } = terminalOf(process.stdout, process.env);
  const next = nextSteps(ahead).map(
    (step) =>
      `${timeText(step.at)}, ${relativeText(step.at, ahead.now)}: ${planVerbs[step.action]} ${step.use} ${planKeyName(ahead, step)}`,
  );
  const lines = [
    ...(isDry ? [`Dry run: nothing was changed.${note === undefined ? "" : ` ${note}`}`, ""] : []),
    ...(events.length === 0 ? ["Nothing is to be changed."] : []),
    ...events.map(({ type, use, kid, reason }) => `${type} ${use} ${kidText(kid)}: ${reason}`),
    ...section("What it means", meaning, columns),
    ...section("What happens next", next, columns),
  ];
  return lines.join("\n");
}

function section(title: string, items: readonly string[], columns: number): string[] {
  if (items.length === 0) return [];
  const lines = items.flatMap((item) =>
    indented(item, columns, 4).map((line, index) => (index === 0 ? `  - ${line.slice(4)}` : line)),
  );
  return ["", `${title}:`, ...lines];
}

function asJson(
  { isDry, note, change: { records, events }, meaning, ahead }: Told,
  before: readonly KeyRecord[],
): string {
  const states = new Map(before.map(({ kid, state }) => [kid, state]));
  const changed = records.filter((record) => !before.includes(record));
  const json = {
    dryRun: isDry,
    ...(note !== undefined && isDry && { note }),
    changes: changed.map((record) => publicRecord(record, { stateBefore: states.get(record.kid) ?? null })),
    events: events.map((event) => ({ ...event, at: iso(event.at) })),
    effects: meaning,
    next: nextSteps(ahead).map(({ at, use, kid, action }) => ({ at: iso(at), use, kid: kid ?? null, action })),
  };
  return JSON.stringify(json, undefined, 2);
}

/** Until the rotation that is under way is over; or where none is, until the next key is announced. */
function nextSteps({ steps }: RotationPlan): RotationPlan["steps"] {
  const first = steps.findIndex(({ action }) => action === "announced");
  return first === -1 ? steps : steps.slice(0, Math.max(first, 1));
}

/** A record as it may be printed: chosen by name, so that its private half cannot get out. */
export function publicRecord(record: KeyRecord, more: object = {}) {
  const { kid, use, alg, state, announcedAt, activatedAt, retiredAt, endedAt, unannounced, publicJwk } = record;
  return {
    kid,
    use,
    alg,
    state,
    announcedAt: iso(announcedAt),
    ...(activatedAt !== undefined && { activatedAt: iso(activatedAt) }),
    ...(retiredAt !== undefined && { retiredAt: iso(retiredAt) }),
    ...(endedAt !== undefined && { endedAt: iso(endedAt) }),
    ...(unannounced === true && { unannounced }),
    publicJwk,
    ...more,
  };
}

export function iso(epochMs: number): string {
  return new Date(epochMs).toISOString();
}
