import { systemClock } from "../../base/clock.ts";
import { ConfigError, StoreError } from "../../base/errors.ts";
import { kidText } from "../../base/format.ts";
import type { DocumentChange } from "../../rotation/custody/document.ts";
import { CannotSign } from "../../rotation/manager/key-changes.ts";
import type { Changed } from "../../rotation/manager/store-access.ts";
import { type Seen, atOf } from "../../rotation/manager/store-clock.ts";
import { type Command as KeyCommand, type NewKey, applyCommand } from "../../rotation/rules/commands.ts";
import type { KeyUse } from "../../rotation/rules/key-records.ts";
import type { SettingName } from "../../service/config/setting-definitions.ts";
import { waitSeconds } from "../argument-parsers.ts";
import type { Command } from "../command.ts";
import { print, printNotice } from "../io.ts";
import { type Report, effectsOf, printChange, printCatchUp } from "./change-report.ts";
import { destroyEnded } from "./destroy-external.ts";
import { destroyEffects, placeEffects } from "./external-key-text.ts";
import { generateDraft, generateFinal } from "./generate-keys.ts";
import { type CommandKeys, type Flags, addStoreSettings } from "./open-keys.ts";
import { waitForReplicas } from "./wait-for-replicas.ts";

/** Flags shared by all commands that change the store. */
export interface ChangeFlags extends Flags {
  readonly dryRun?: true;
  readonly yes?: true;
  readonly force?: true;
  readonly json?: true;
  /** How long to wait for replicas, in seconds. */
  readonly wait: number;
}

export interface ChangeOptions {
  readonly flags: ChangeFlags;
  /** Whether the change may make valid tokens fail, or another reason why it requires `--yes`. */
  readonly breaks: boolean | string;
  /** Use and alg of the new key, if the change needs one. */
  readonly newKey?: { readonly use: KeyUse; readonly alg?: string | undefined } | undefined;
  /** Returns the effects of the change that cannot be derived from the records. */
  readonly remarks?: (change: Changed) => readonly string[];
  /** Message that is printed if there is nothing to change. */
  readonly unchanged?: string | undefined;
  /** Returns a JSON object for the operator to keep, which is printed on its own line after the change. */
  readonly keep?: (change: Changed) => object;
}

/** Decides on a change. @param key the new key, if the change needs one */
export type DecideWithKey = (seen: Seen, key?: NewKey) => DocumentChange | Promise<DocumentChange>;

/** Creates a function that applies one of the commands from the rotation rules, using the store's policy. */
export const byCommand =
  (command: (key: NewKey | undefined) => KeyCommand): DecideWithKey =>
  (seen, key) =>
    applyCommand(seen.document.records, command(key), atOf(seen, systemClock));

/**
 * Settings of commands that generate a key. They include `destroyExternal`, because a new key is destroyed if it turns
 * out not to be needed.
 */
export const newKeySettings = ["signerType", "destroyExternal"] as const;

/** Extends a command with the flags for making a change. @param more additional settings for the command */
export function addChangeFlags(
  command: Command,
  { force = false, yes = false } = {},
  ...more: readonly SettingName[]
): Command {
  if (force) command.option("--force", "take the step now, even if that makes valid tokens fail; requires --yes");
  if (force || yes) command.option("--yes", "confirm a change that may make valid tokens fail");
  return addStoreSettings(addWaitFlags(command), "signers", ...more);
}

/** Extends a command with the flags for a change that does not need confirmation. */
export function addWaitFlags(command: Command): Command {
  return command
    .option(
      "--wait <seconds>",
      "how long to wait for every replica to receive the change; 0 means do not wait",
      waitSeconds,
      10,
    )
    .option("--dry-run", "print the exact change and its effects without making it");
}

/**
 * Changes the store with a compare-and-set. Prints the change, its effects on verifiers, and the next steps. Then waits
 * for the replicas and prints which ones are behind.
 *
 * @throws ConfigError `ERR_CONFIRMATION` if the change may make valid tokens fail and `--yes` is not given; the message
 * contains the effects
 * @throws StoreError `ERR_STORE_EMPTY` if the change needs a new key and the store has no keys yet
 * @throws the same errors as `Keyring.change`, and any error that `decide` throws
 */
export async function changeKeys(keys: CommandKeys, options: ChangeOptions, decide: DecideWithKey): Promise<void> {
  const { flags, breaks, newKey, remarks = () => [], unchanged, keep } = options;
  const { io, keyring, settings, signers } = keys;
  if (newKey !== undefined) checkHasKeys(keys);
  // A key in an HSM or key service is generated only after the operator has confirmed the change.
  const draft = newKey && (await generateDraft(keys, newKey));
  const change = await keyring.preview((seen) => decide(seen, draft)).catch(rethrowWithRemedy);
  const note = draft && "The new key was generated only for this preview; the real key will have a different kid.";
  const external = [...placeEffects(settings, draft, change.before, change), ...destroyEffects(signers, change)];
  const preview: Report = { isDry: true, note, unchanged, change, remarks: remarks(change), external };
  if (flags.dryRun === true) return printChange(io, preview, flags);
  if (breaks !== false && flags.yes !== true) {
    const why = breaks === true ? "this change may make valid tokens fail" : breaks;
    const effects = [...effectsOf(preview), ...(note === undefined ? [] : [note])].map((effect) => `\n- ${effect}`);
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was changed, because ${why}; to make the change anyway, add --yes. Effects:${effects.join("")}\n`,
    );
  }
  const done = await commit(keys, draft, decide);
  const kept = keep?.(done.change);
  const report: Report = { ...preview, ...done, remarks: remarks(done.change), isDry: false, kept };
  // The change is committed. Print it before waiting for the replicas.
  if (flags.json !== true) printChange(io, report, flags);
  const catchUp = await waitForReplicas(keys, report.change, flags.wait);
  if (flags.json === true) printChange(io, { ...report, catchUp }, flags);
  else if (catchUp !== undefined) printCatchUp(io, catchUp);
  if (flags.json !== true && kept !== undefined) print(io, `\n${JSON.stringify(kept)}`);
}

/**
 * Rejects a store without keys, because it may be the wrong store, and the first key in a store starts signing
 * immediately.
 *
 * @throws StoreError `ERR_STORE_EMPTY`
 */
export function checkHasKeys({ document, settings: { issuer } }: Pick<CommandKeys, "document" | "settings">): void {
  if (document.records.length > 0) return;
  const forIssuer = issuer === undefined ? "" : ` for ${issuer}`;
  throw new StoreError(
    "ERR_STORE_EMPTY",
    `nothing was changed, because the store has no keys${forIssuer}. If the keys are in another store, correct --data, --store or --issuer. If there are none yet, generate them with jwksd serve, or import them with jwksd keys import`,
  );
}

async function commit(
  keys: CommandKeys,
  draft: NewKey | undefined,
  decide: DecideWithKey,
): Promise<Pick<Report, "change" | "external">> {
  const { io, keyring, settings, signers } = keys;
  const key = draft && (await generateFinal(keys, draft));
  let change: Changed;
  try {
    change = await keyring.change((seen) => decide(seen, key), key).catch(rethrowWithRemedy);
  } catch (error) {
    if (!(error instanceof CannotSign)) throw error;
    if (error.kid !== key?.kid) {
      const isAnnounced = keys.document.records.some(({ kid, state }) => kid === error.kid && state === "announced");
      const which = isAnnounced ? "next" : "earlier";
      const remedy = `; to continue without it, first run: jwksd keys remove -- ${kidText(error.kid)}`;
      printNotice(io, `nothing was changed, because the ${which} key cannot sign${isAnnounced ? remedy : ""}`);
    }
    throw error.cause;
  }
  const places = placeEffects(settings, key, change.before, change);
  return { change, external: [...places, ...(await destroyEnded(io, signers, keyring, change))] };
}

/**
 * Rethrows an error. If the error is about wrapping keys, adds the remedy, because `serve` cannot read the store after
 * the change unless it has the same wrapping keys as this command.
 *
 * @throws any other error unchanged
 */
function rethrowWithRemedy(error: unknown): never {
  if (!(error instanceof StoreError)) throw error;
  if (error.code !== "ERR_WRAPPING_KEY_MISSING" && error.code !== "ERR_WRAPPED_KEY") throw error;
  const message = `nothing was changed: ${error.message}; run this command with the same --issuer and wrapping keys as jwksd serve`;
  throw new StoreError(error.code, message, { cause: error });
}
