import type { Command } from "commander";
import { ConfigError, StoreError } from "../../base/errors.ts";
import type { Changed, Decision, Seen } from "../../rotation/manager/compare-and-set.ts";
import { CannotSign } from "../../rotation/manager/keyring.ts";
import type { NewKey } from "../../rotation/rules/commands.ts";
import { impactOf } from "../../rotation/rules/impact.ts";
import { type RotationPlan, plan, planKeyName } from "../../rotation/rules/plan.ts";
import type { RotationPolicy } from "../../rotation/rules/policy.ts";
import { recordTimes, uriOf } from "../../rotation/rules/records.ts";
import { kidText, relativeText, timeText } from "../../rotation/rules/format.ts";
import { planVerbs } from "../../service/admin/plan-scale.ts";
import { indented, terminalOf } from "../terminal.ts";
import type { KeyRecord, KeyUse } from "../../rotation/store/store.ts";
import { waitSeconds } from "../arguments.ts";
import { destroyEffects, destroyEnded, leaveUnrecorded, placeEffects } from "./external-keys.ts";
import { type Followed, follow, followedJson, followedLines } from "./follow.ts";
import { type Io, iso, print, tell } from "../io.ts";
import { makeDraft, makeReal } from "./make-keys.ts";
import { type CommandKeys, type Flags, addStoreSettings, recordsOf, tellPolicy } from "./open-keys.ts";

/** Flags of every command that changes keys. */
export interface ChangeFlags extends Flags {
  readonly dryRun?: true;
  readonly yes?: true;
  readonly force?: true;
  readonly json?: true;
  /** In seconds. */
  readonly wait: number;
}

export interface ChangeOptions {
  readonly flags: ChangeFlags;
  /** It may break verifications, so it asks for `--yes`. */
  readonly breaks: boolean;
  /** The use and alg of a key that the change needs. */
  readonly newKey?: { readonly use: KeyUse; readonly alg?: string | undefined } | undefined;
  /** What it means beside what its records show. */
  readonly remarks?: readonly string[];
  /** How it is already, where nothing is to be changed. */
  readonly unchanged?: string | undefined;
}

type Decide = (
  records: readonly KeyRecord[],
  now: number,
  key: NewKey | undefined,
  seen: Seen,
) => Decision | Promise<Decision>;

/** Gives a command the flags of every change. */
export function addChangeFlags(command: Command, { force = false, yes = false } = {}): Command {
  if (force) command.option("--force", "take the step now, although it breaks verifications; needs --yes");
  if (force || yes) command.option("--yes", "confirm a change that breaks verifications");
  command.option(
    "--wait <seconds>",
    "how long to wait until every replica publishes the change; 0 does not wait",
    waitSeconds,
    10,
  );
  return addStoreSettings(command.option("--dry-run", "print the exact change and what it means, and change nothing"));
}

/**
 * Changes keys by compare-and-set, and prints the change, what it means for verifiers, and what happens next. Then waits for the
 * replicas, and prints who has not followed.
 *
 * @throws ConfigError `ERR_CONFIRMATION`: it breaks verifications, and `--yes` is not given; the message says what it breaks
 * @throws StoreError `ERR_STORE_EMPTY`: it needs a new key, and there is none yet
 * @throws see `Keyring.change`, and what `decide` throws
 */
export async function changeKeys(keys: CommandKeys, options: ChangeOptions, decide: Decide): Promise<void> {
  const { flags, breaks, newKey, remarks = [], unchanged } = options;
  const { io, keyring, settings, signers } = keys;
  // A key in an HSM or key service is made only when it is certain that it is wanted.
  const draft = newKey && (await makeDraft(keys, newKey, await recordsWithKeys(keys)));
  const change = await keyring.preview((records, now, seen) => decide(records, now, draft, seen)).catch(explained);
  if (change.before.length > 0) tellPolicy(io, settings, change.seen.leases);
  const note = draft && "The new key was made to look ahead only; the real one has another kid.";
  const external = [...placeEffects(settings, draft, change.before, change), ...destroyEffects(signers, change)];
  const preview: Report = { isDry: true, note, unchanged, change, policy: keyring.policy, remarks, external };
  if (flags.dryRun === true) return printChange(io, preview, flags);
  if (breaks && flags.yes !== true) {
    const meaning = [...meaningOf(preview), ...(note === undefined ? [] : [note])].map((line) => `\n- ${line}`);
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was changed, because this may break verifications; --yes does it:${meaning.join("")}\n`,
    );
  }
  const done = { ...preview, ...(await commit(keys, draft, decide)), isDry: false };
  // The change is committed: a person reads that before the command waits for the replicas.
  if (flags.json !== true) printChange(io, done, flags);
  const followed = await follow(keys, done.change, flags.wait);
  if (flags.json === true) printChange(io, { ...done, followed }, flags);
  else if (followed !== undefined && followed.replicas.leases.length > 0) {
    const { columns } = terminalOf(io.stdout, io.environment);
    print(io, section("Replicas", followedLines(followed, done.change), columns).join("\n"));
  }
}

/** A first key would begin to sign at once, perhaps in a store that was meant to be another one. @throws StoreError `ERR_STORE_EMPTY` */
async function recordsWithKeys({ custody, settings: { issuer } }: CommandKeys): Promise<readonly KeyRecord[]> {
  const records = await recordsOf(custody.store);
  if (records.length > 0) return records;
  const whose = issuer === undefined ? "" : ` of ${issuer}`;
  throw new StoreError(
    "ERR_STORE_EMPTY",
    `the store holds no keys${whose}, and nothing was changed; if they are elsewhere, correct --data, --store or --issuer; jwksd serve makes the first keys, jwksd keys import takes over those that you have`,
  );
}

async function commit(keys: CommandKeys, draft: NewKey | undefined, decide: Decide) {
  const { io, keyring, settings, signers } = keys;
  const key = draft && (await makeReal(keys, draft));
  const uri = key && uriOf(key);
  let change: Changed;
  try {
    change = await keyring.change((records, now, seen) => decide(records, now, key, seen)).catch(explained);
  } catch (error) {
    // A store may have committed the change although its call failed, so the external key stays.
    if (uri !== undefined) await leaveUnrecorded(keys, uri, !(error instanceof StoreError));
    if (!(error instanceof CannotSign)) throw error;
    if (error.kid !== key?.kid) {
      tell(
        io,
        `nothing was changed, because the next key cannot sign; to do without it, first: jwksd keys remove -- ${kidText(error.kid)}`,
      );
    }
    throw error.cause;
  }
  const isUsed = change.records.some(({ kid }) => kid === key?.kid);
  if (uri !== undefined && !isUsed) await leaveUnrecorded(keys, uri, true);
  const places = placeEffects(settings, key, change.before, change);
  return { change, external: [...places, ...(await destroyEnded(io, signers, keyring, change))] };
}

/** A `serve` with other wrapping keys could not follow, and one that starts could use either the new key or the old ones. */
function explained(error: unknown): never {
  if (!(error instanceof StoreError)) throw error;
  if (error.code !== "ERR_WRAPPING_KEY_MISSING" && error.code !== "ERR_WRAPPED_KEY") throw error;
  const message = `nothing was changed: ${error.message}; give this command the --issuer and the wrapping keys of serve`;
  throw new StoreError(error.code, message, { cause: error });
}

interface Report {
  readonly isDry: boolean;
  /** What a dry run cannot show as it will be. */
  readonly note: string | undefined;
  readonly unchanged: string | undefined;
  readonly change: Changed;
  readonly policy: RotationPolicy;
  readonly remarks: readonly string[];
  /** What it means for keys in HSMs and key services. */
  readonly external: readonly string[];
  /** The replicas that publish the change; `undefined` where the command did not wait for them. */
  readonly followed?: Followed | undefined;
}

function meaningOf({ change: { before, records, seen }, policy, remarks, external }: Report): string[] {
  return [...impactOf(before, records, policy, seen.now), ...remarks, ...external];
}

function printChange(io: Io, report: Report, flags: ChangeFlags): void {
  const { change, policy } = report;
  const meaning = meaningOf(report);
  const ahead = plan(change.records, policy, change.seen.now);
  print(io, flags.json === true ? asJson(report, meaning, ahead) : asText(io, report, meaning, ahead));
}

function asText(
  io: Io,
  { isDry, note, unchanged, change: { events } }: Report,
  meaning: readonly string[],
  ahead: RotationPlan,
): string {
  const { columns } = terminalOf(io.stdout, io.environment);
  const next = nextSteps(ahead).map(
    (step) =>
      `${timeText(step.at)}, ${relativeText(step.at, ahead.now)}: ${planVerbs[step.action]} ${step.use} ${planKeyName(ahead, step)}`,
  );
  const lines = [
    ...(isDry ? [`Dry run: nothing was changed.${note === undefined ? "" : ` ${note}`}`, ""] : []),
    ...(events.length === 0 ? [`Nothing is to be changed.${unchanged === undefined ? "" : ` ${unchanged}`}`] : []),
    ...(isDry && events.length > 0 ? ["Without --dry-run, the audit log would say:"] : []),
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
  { isDry, note, change: { before, records, events }, followed }: Report,
  meaning: readonly string[],
  ahead: RotationPlan,
): string {
  const states = new Map(before.map(({ kid, state }) => [kid, state]));
  const changed = records.filter((record) => !before.includes(record));
  const json = {
    dryRun: isDry,
    ...(note !== undefined && isDry && { note }),
    changes: changed.map((record) => publicRecord(record, { stateBefore: states.get(record.kid) ?? null })),
    events: events.map((event) => ({ ...event, at: iso(event.at) })),
    effects: meaning,
    replicas: followedJson(followed),
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
  const { kid, use, alg, state, unannounced, announceForSeconds, retireForSeconds, publicJwk } = record;
  const times = recordTimes.map((name) => [name, record[name]] as const);
  const uri = uriOf(record);
  return {
    kid,
    use,
    alg,
    state,
    ...Object.fromEntries(times.flatMap(([name, at]) => (at === undefined ? [] : [[name, iso(at)]]))),
    ...(unannounced === true && { unannounced }),
    ...(announceForSeconds !== undefined && { announceForSeconds }),
    ...(retireForSeconds !== undefined && { retireForSeconds }),
    ...(uri !== undefined && { uri }),
    publicJwk,
    ...more,
  };
}
