import { systemClock } from "../../base/clock.ts";
import { ConfigError, StoreError } from "../../base/errors.ts";
import { kidText } from "../../base/format.ts";
import { type Seen, atOf } from "../../rotation/manager/clocks.ts";
import { CannotSign } from "../../rotation/manager/keyring.ts";
import type { Changed, Decision } from "../../rotation/manager/store-access.ts";
import { type Command as KeyCommand, type NewKey, applyCommand } from "../../rotation/rules/commands.ts";
import type { KeyUse } from "../../rotation/rules/records.ts";
import type { SettingName } from "../../service/config/setting-definitions.ts";
import { waitSeconds } from "../arguments.ts";
import type { Command } from "../command.ts";
import { tell } from "../io.ts";
import { type Report, meaningOf, printChange, printFollowed } from "./change-report.ts";
import { destroyEnded } from "./destroy.ts";
import { destroyEffects, placeEffects } from "./external-effects.ts";
import { makeDraft, makeReal } from "./make-keys.ts";
import { type CommandKeys, type Flags, addStoreSettings } from "./open-keys.ts";
import { follow } from "./wait-for-replicas.ts";

/** Flags of every command that changes the store. */
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
  readonly remarks?: (change: Changed) => readonly string[];
  /** How it is already, where nothing is to be changed. */
  readonly unchanged?: string | undefined;
}

/** Decides on a change. @param key the new key that it needs */
export type DecideWithKey = (seen: Seen, key: NewKey | undefined) => Decision | Promise<Decision>;

/** Decides as a command of the rules does, by the policy of the store. */
export const byCommand =
  (command: (key: NewKey | undefined) => KeyCommand): DecideWithKey =>
  (seen, key) =>
    applyCommand(seen.document.records, command(key), atOf(seen, systemClock));

/** Settings of commands that make a key. If it turns out that the key is not needed, it is destroyed again. */
export const newKeySettings = ["signerType", "destroyExternal"] as const;

/** Adds the flags of every change to a command. @param more settings that the command takes beyond those of every change */
export function addChangeFlags(
  command: Command,
  { force = false, yes = false } = {},
  ...more: readonly SettingName[]
): Command {
  if (force) command.option("--force", "take the step now, although it breaks verifications; needs --yes");
  if (force || yes) command.option("--yes", "confirm a change that breaks verifications");
  return addStoreSettings(addWaitFlags(command), "signers", ...more);
}

/** Gives a command the flags of a change that is not confirmed. */
export function addWaitFlags(command: Command): Command {
  return command
    .option(
      "--wait <seconds>",
      "how long to wait until every replica follows the change; 0 does not wait",
      waitSeconds,
      10,
    )
    .option("--dry-run", "print the exact change and what it means, and change nothing");
}

/**
 * Changes the store by compare-and-set, and prints the change, what it means for verifiers, and what happens next. Then waits for the
 * replicas, and prints who has not followed.
 *
 * @throws ConfigError `ERR_CONFIRMATION`: it breaks verifications, and `--yes` is not given; the message says what it breaks
 * @throws StoreError `ERR_STORE_EMPTY`: it needs a new key, and there is none yet
 * @throws see `Keyring.change`, and what `decide` throws
 */
export async function changeKeys(keys: CommandKeys, options: ChangeOptions, decide: DecideWithKey): Promise<void> {
  const { flags, breaks, newKey, remarks = () => [], unchanged } = options;
  const { io, keyring, settings, signers } = keys;
  if (newKey !== undefined) checkHasKeys(keys);
  // A key in an HSM or key service is made only when it is certain that it is wanted.
  const draft = newKey && (await makeDraft(keys, newKey));
  const change = await keyring.preview((seen) => decide(seen, draft)).catch(explained);
  const note = draft && "The new key was made to look ahead only; the real one has another kid.";
  const external = [...placeEffects(settings, draft, change.before, change), ...destroyEffects(signers, change)];
  const preview: Report = { isDry: true, note, unchanged, change, remarks: remarks(change), external };
  if (flags.dryRun === true) return printChange(io, preview, flags);
  if (breaks && flags.yes !== true) {
    const meaning = [...meaningOf(preview), ...(note === undefined ? [] : [note])].map((line) => `\n- ${line}`);
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was changed, because this may break verifications; --yes does it:${meaning.join("")}\n`,
    );
  }
  const done = await commit(keys, draft, decide);
  const report: Report = { ...preview, ...done, remarks: remarks(done.change), isDry: false };
  // The change is committed: a person reads that before the command waits for the replicas.
  if (flags.json !== true) printChange(io, report, flags);
  const followed = await follow(keys, report.change, flags.wait);
  if (flags.json === true) printChange(io, { ...report, followed }, flags);
  else if (followed !== undefined) printFollowed(io, followed);
}

/** A first key would begin to sign at once, perhaps in a store that was meant to be another one. @throws StoreError `ERR_STORE_EMPTY` */
export function checkHasKeys({ document, settings: { issuer } }: Pick<CommandKeys, "document" | "settings">): void {
  if (document.records.length > 0) return;
  const whose = issuer === undefined ? "" : ` of ${issuer}`;
  throw new StoreError(
    "ERR_STORE_EMPTY",
    `the store holds no keys${whose}, and nothing was changed; if they are elsewhere, correct --data, --store or --issuer; jwksd serve makes the first keys, jwksd keys import takes over those that you have`,
  );
}

async function commit(
  keys: CommandKeys,
  draft: NewKey | undefined,
  decide: DecideWithKey,
): Promise<Pick<Report, "change" | "external">> {
  const { io, keyring, settings, signers } = keys;
  const key = draft && (await makeReal(keys, draft));
  let change: Changed;
  try {
    change = await keyring.change((seen) => decide(seen, key), key).catch(explained);
  } catch (error) {
    if (!(error instanceof CannotSign)) throw error;
    if (error.kid !== key?.kid) {
      tell(
        io,
        `nothing was changed, because the next key cannot sign; to do without it, first: jwksd keys remove -- ${kidText(error.kid)}`,
      );
    }
    throw error.cause;
  }
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
