import type { Command } from "commander";
import { systemClock } from "../clock.ts";
import { ConfigError, KeyMaterialError, StoreError } from "../errors.ts";
import { type Change, noteTokenLifetimes } from "../rotation/advance.ts";
import type { NewKey } from "../rotation/commands.ts";
import { impactOf } from "../rotation/impact.ts";
import { type RotationPlan, plan, planKeyName } from "../rotation/plan.ts";
import type { RotationPolicy } from "../rotation/policy.ts";
import { compareAndSet } from "../manager/compare-and-set.ts";
import { createKeyOpener, privateJwkOf } from "../manager/private-keys.ts";
import { bindingOf } from "../manager/owner.ts";
import { addedRecords, isLive, jweOf, newlyActive, uriOf } from "../rotation/records.ts";
import { headerOf } from "../manager/wrapping.ts";
import { kidText, relativeText, timeText } from "../rotation/format.ts";
import { planVerbs } from "../report/plan-scale.ts";
import { indented, terminalOf } from "../report/terminal.ts";
import type { KeyRecord, KeyUse } from "../store/store.ts";
import { destroyEffects, destroyEnded, leaveOver, placeEffects } from "./external-keys.ts";
import { type Io, print, tell } from "./io.ts";
import { makeDraft, makeReal } from "./make-keys.ts";
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
  /** The use and alg of a key that the change needs. */
  readonly newKey?: { readonly use: KeyUse; readonly alg?: string | undefined } | undefined;
  /** It is what is done about keys whose wrapping key is lost, so it is not refused where that was not given. */
  readonly mayBeLost?: boolean;
}

type Decide = (records: readonly KeyRecord[], now: number, key: NewKey | undefined) => Change | Promise<Change>;

const dryKeyNote = "The new key was made to look ahead only; the real one has another kid.";

/** Gives a command the flags of every change. */
export function addChangeFlags(command: Command, { force = false, yes = false } = {}): Command {
  if (force) command.option("--force", "take the step now, although it breaks verifications; needs --yes");
  if (force || yes) command.option("--yes", "confirm a change that breaks verifications");
  return addStoreSettings(command.option("--dry-run", "print the exact change and what it means, and change nothing"));
}

/**
 * Changes keys by compare-and-set, and prints the change, what it means for verifiers, and what happens next.
 *
 * @throws ConfigError `ERR_CONFIRMATION`: it breaks verifications, and `--yes` is not given; the message says what it breaks
 * @throws StoreError `ERR_WRAPPING_KEY_MISSING`, `ERR_WRAPPED_KEY`: a new key would not be wrapped as the others are
 * @throws what `decide` throws
 */
export async function changeKeys(open: OpenKeys, options: ChangeOptions, decide: Decide): Promise<void> {
  const { flags, breaks, newKey, mayBeLost = false } = options;
  const { vault, policy } = open;
  const now = systemClock.now();
  const before = await recordsOf(vault.store);
  // A key in an HSM or key service is made only when it is certain that it is wanted.
  const draft = newKey && (await makeDraft(open, newKey, before));
  const change = await decide(before, now, draft);
  await checkWrapped(open, before, change.records, mayBeLost);
  const external = [...placeEffects(open.settings, draft, before, change), ...destroyEffects(open.signers, change)];
  const told = { isDry: true, note: draft && dryKeyNote, before, now, change, policy, external };
  if (flags.dryRun === true) return printChange(open.io, told, flags);
  if (breaks && flags.yes !== true) {
    const notes = told.note === undefined ? [] : [told.note];
    const meaning = [...meaningOf(told), ...notes].map((line) => `\n- ${line}`);
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was changed, because this may break verifications; --yes does it:${meaning.join("")}\n`,
    );
  }
  printChange(open.io, { ...told, ...(await commit(open, draft, decide)), isDry: false }, flags);
}

/**
 * A new private key is wrapped as the settings say. A `serve` with other ones could not follow, and one that starts could use either
 * the new key or the old ones.
 *
 * @throws StoreError `ERR_WRAPPING_KEY_MISSING`, `ERR_WRAPPED_KEY`
 */
async function checkWrapped(
  { io, vault }: OpenKeys,
  before: readonly KeyRecord[],
  after: readonly KeyRecord[],
  mayBeLost: boolean,
): Promise<void> {
  if (!addedRecords(before, after).some((record) => jweOf(record) !== undefined)) return;
  for (const record of before.filter(isLive)) {
    const jwe = jweOf(record);
    if (jwe === undefined) continue;
    const error: unknown = await privateJwkOf(record, vault).then(
      () => undefined,
      (error: unknown) => error,
    );
    if (error === undefined) continue;
    if (error instanceof KeyMaterialError && mayBeLost) continue;
    if (!(error instanceof StoreError)) throw error;
    if (!mayBeLost || headerOf(jwe)?.["iss"] !== bindingOf(vault.owner)) {
      const message = `nothing was changed: ${error.message}; give this command the --issuer and the wrapping keys of serve`;
      throw new StoreError(error.code, message, { cause: error });
    }
    tell(io, `${error.message}; a jwksd serve that has other wrapping keys than this command cannot follow`);
  }
}

async function commit(
  open: OpenKeys,
  draft: NewKey | undefined,
  decide: Decide,
): Promise<Pick<Told, "before" | "now" | "change" | "external">> {
  const key = draft && (await makeReal(open, draft));
  const uri = key && uriOf(key);
  let now = systemClock.now();
  let before: readonly KeyRecord[] = [];
  let change: Change;
  try {
    change = await compareAndSet(
      open.vault.store,
      async (records) => {
        now = systemClock.now();
        before = records;
        const change = await decide(records, now, key);
        await checkCanSign(open, records, change);
        return noteTokenLifetimes(change, open.policy);
      },
      { clock: systemClock },
    );
  } catch (error) {
    // A store that fails may have taken it all the same.
    if (uri !== undefined) await leaveOver(open.io, open.signers, uri, !(error instanceof StoreError));
    throw error;
  }
  const isUsed = change.records.some(({ kid }) => kid === key?.kid);
  if (uri !== undefined && !isUsed) await leaveOver(open.io, open.signers, uri, true);
  const places = placeEffects(open.settings, key, before, change);
  return { before, now, change, external: [...places, ...(await destroyEnded(open.io, open.signers, change))] };
}

/** A key in an HSM or key service becomes active only after it has signed. @throws SignerError */
async function checkCanSign(
  { io, signers, vault }: OpenKeys,
  before: readonly KeyRecord[],
  { records }: Change,
): Promise<void> {
  const next = newlyActive(before, records);
  if (next === undefined || uriOf(next) === undefined) return;
  const opener = createKeyOpener(vault, signers.openSigner, new AbortController().signal);
  try {
    await opener.probe(next);
  } catch (error) {
    if (before.some(({ kid }) => kid === next.kid)) {
      tell(
        io,
        `nothing was changed, because the next key cannot sign; to do without it, first: jwksd keys remove -- ${kidText(next.kid)}`,
      );
    }
    throw error;
  } finally {
    await opener.close();
  }
}

interface Told {
  readonly isDry: boolean;
  /** What a dry run cannot show as it will be. */
  readonly note: string | undefined;
  readonly before: readonly KeyRecord[];
  readonly now: number;
  readonly change: Change;
  readonly policy: RotationPolicy;
  /** What it means for keys in HSMs and key services. */
  readonly external: readonly string[];
}

function meaningOf({ before, now, change, policy, external }: Told): string[] {
  return [...impactOf(before, change.records, policy, now), ...external];
}

function printChange(io: Io, told: Told, flags: ChangeFlags): void {
  const { now, change, policy } = told;
  const meaning = meaningOf(told);
  const ahead = plan(change.records, policy, now);
  print(io, flags.json === true ? asJson(told, meaning, ahead) : asText(io, told, meaning, ahead));
}

function asText(
  io: Io,
  { isDry, note, change: { events } }: Told,
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
  { isDry, note, before, change: { records, events } }: Told,
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
  const { maxTokenLifetimeSeconds } = record;
  const uri = uriOf(record);
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
    ...(maxTokenLifetimeSeconds !== undefined && { maxTokenLifetimeSeconds }),
    ...(uri !== undefined && { uri }),
    publicJwk,
    ...more,
  };
}

export function iso(epochMs: number): string {
  return new Date(epochMs).toISOString();
}
