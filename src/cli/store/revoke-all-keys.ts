import { InvalidArgumentError } from "commander";
import { mapInParallel } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { ConfigError, asJwksdError } from "../../base/errors.ts";
import { someOf, timeText } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import { createCustody } from "../../rotation/custody/custody.ts";
import { ownedBy } from "../../rotation/custody/issuer-check.ts";
import { readRegister } from "../../rotation/custody/read-register.ts";
import { rewrap } from "../../rotation/custody/rewrap.ts";
import { checkName } from "../../rotation/explain/issuer-status.ts";
import { checkAllHave } from "../../rotation/explain/replicas.ts";
import type { KeyChange } from "../../rotation/rules/advance.ts";
import {
  type LiveRecord,
  isLive,
  activeKey,
  announcedKey,
  jweOf,
  keyUses,
  liveRecords,
  nextAlg,
} from "../../rotation/rules/key-records.ts";
import { signersOf } from "../../service/config/signers.ts";
import { Command } from "../command.ts";
import { type Io, iso, print, printJson, printNotice } from "../io.ts";
import { type DecideWithKey, byCommand, checkHasKeys } from "../managed-keys/change-keys.ts";
import { type CommandKeys, type Flags, viewOf, withCustody } from "../managed-keys/open-keys.ts";
import { progressLine } from "../managed-keys/wait-for-replicas.ts";
import { addSettings } from "../setting-flags.ts";
import { printParagraphs } from "../terminal.ts";
import { inParallel, issuersSettings, withIssuers } from "./open-issuers.ts";

type RevokeFlags = Flags & {
  readonly before?: number;
  readonly dryRun?: true;
  readonly yes?: true;
  readonly json?: true;
};

export function revokeKeysCommand(io: Io): Command {
  const command = new Command("revoke-keys")
    .description("Revoke all keys of all issuers after a wrapping key leaks or a machine is compromised.")
    .option(
      "--before <time>",
      "revoke only keys generated before this time, to resume an interrupted run (default: now)",
      parseTime,
    )
    .option("--dry-run", "report what would be revoked without changing anything")
    .option("--yes", "acknowledge that every token from every issuer will stop working")
    .option("--json", "JSON output");
  return addSettings(command, [...issuersSettings, "signerType", "signers"])
    .notes(`
If a wrapping key has leaked, first replace it: in every process's
configuration, list a new key ahead of it, and restart the process. New keys are
encrypted with the first wrapping key; keys encrypted with any other wrapping
key are revoked whatever their age.

Each issuer is changed in one commit, ten issuers at a time. If an issuer fails,
its keys stay valid, the command continues with the others, and the exit code is
1. The command prints how to resume; a resumed run does not change finished
issuers again.

Examples:
  $ jwksd issuers revoke-keys --dry-run
  $ jwksd issuers revoke-keys --yes
  $ jwksd issuers revoke-keys --yes --before 2026-01-31T09:30:00.000Z`)
    .action((flags: RevokeFlags) => revokeKeys(io, flags));
}

function parseTime(text: string): number {
  const time = Date.parse(text);
  if (Number.isNaN(time)) throw new InvalidArgumentError("Must be a time such as 2026-01-31T09:30:00.000Z.");
  return time;
}

async function revokeKeys(io: Io, flags: RevokeFlags): Promise<void> {
  const isDry = flags.dryRun === true;
  const showProgress = progressLine(io);
  await withIssuers(io, flags, async ({ settings, database, wrappingKeys, listed }) => {
    const all = `${listed.length.toLocaleString("en")} issuers`;
    if (!isDry && flags.yes !== true) {
      throw new ConfigError(
        "ERR_CONFIRMATION",
        `nothing was changed. This command revokes all keys of ${all}, so every token will fail; it encrypts new keys with the wrapping key ${wrappingKeys[0].id}. If that wrapping key has leaked, first list a new one ahead of it; then confirm with --yes`,
      );
    }
    // The keys' times come from the database's clock, so this time must, too.
    const { now = systemClock.now() } = await readRegister(database);
    const { before = now } = flags;
    const again = `jwksd issuers revoke-keys --yes --before ${iso(before)}`;
    if (!isDry) printNotice(io, `revoking all keys of ${all}; if this is interrupted, resume with: ${again}`);
    const signers = await signersOf(isDry ? { ...settings, signerType: "local" } : settings);
    const failed: { readonly issuer: string; readonly code: string; readonly message: string }[] = [];
    let [done, revoked, trustedUntil] = [0, 0, 0];
    await mapInParallel(listed, inParallel, async ({ issuer, key }) => {
      try {
        await checkName({ issuer, key });
        const register = database.forIssuer(issuer);
        const custody = createCustody({ register, keys: wrappingKeys, issuerCheck: ownedBy(issuer) });
        const times = await withCustody(io, { settings, signers, custody }, (keys) =>
          custody.movingToFirst(() => revokeOld(keys, before, isDry)),
        );
        revoked += times.length;
        trustedUntil = Math.max(trustedUntil, ...times);
      } catch (error) {
        const { code, message } = asJwksdError(error);
        failed.push({ issuer, code, message });
        printNotice(io, `${issuer}: ${message} [${code}]`);
      }
      showProgress(`${(done += 1)} of ${all}, ${failed.length} failed`);
    });
    showProgress("");
    if (failed.length > 0) io.exitCode = 1;
    if (flags.json === true) {
      const until = trustedUntil === 0 ? null : iso(trustedUntil);
      return printJson(io, {
        dryRun: isDry,
        before: iso(before),
        issuers: listed.length,
        revoked,
        trustedUntil: until,
        failed,
      });
    }
    const keys = `${revoked.toLocaleString("en")} ${revoked === 1 ? "key" : "keys"}`;
    print(io, isDry ? `Dry run: nothing was changed. ${all}: ${keys} would be revoked.` : `${all}: ${keys} revoked.`);
    if (revoked > 0)
      printParagraphs(io, [
        `Caches and processes that have not read the change may trust these keys until ${timeText(trustedUntil)}.`,
      ]);
    if (failed.length > 0) {
      const names = someOf(failed, ({ issuer }) => printable(issuer));
      const left = `Keys are still valid for ${failed.length.toLocaleString("en")} of ${all}: ${names}.`;
      printParagraphs(io, [`${left}${isDry ? "" : ` Fix the cause, then run: ${again}`}`]);
    }
  });
}

/**
 * Revokes an issuer's old keys in one commit. For each revoked key, returns the latest time at which caches may trust
 * it.
 */
async function revokeOld(
  { settings, custody, access, keyring, document }: CommandKeys,
  before: number,
  isDry: boolean,
): Promise<number[]> {
  const isOld = (record: LiveRecord): boolean => {
    const jwe = jweOf(record);
    return record.announcedAt < before || (jwe !== undefined && !custody.isCurrent(jwe));
  };
  checkHasKeys({ document, settings: { ...settings, issuer: custody.owner.issuer } });
  if (!custody.movesWrappingKey && !liveRecords(document.records).some(isOld)) return [];
  if (custody.movesWrappingKey) checkAllHave(custody.wrappingKeys[0], await viewOf(access));
  const [sig, enc] = await Promise.all(
    keyUses.map(async (use) => {
      const active = activeKey(document.records, use);
      const next = announcedKey(document.records, use);
      const isNeeded = active !== undefined && isOld(active) && (next === undefined || isOld(next));
      return isNeeded ? keyring.makeKey(use, nextAlg(document.records, use)) : undefined;
    }),
  );
  const decide: DecideWithKey = async (seen) => {
    let change: KeyChange = { records: seen.document.records, events: [] };
    for (const { kid, use } of liveRecords(change.records).filter(isOld)) {
      const revoke = byCommand((replacement) => ({ type: "revoke", kid, replacement }));
      const found = { ...seen, document: { ...seen.document, records: change.records } };
      const { records = [], events = [] } = await revoke(found, use === "sig" ? sig : enc);
      change = { records, events: [...change.events, ...events] };
    }
    // Without old keys, the MAC may still need the first wrapping key.
    return change.events.length > 0 ? change : rewrap(change.records, custody, seen.now);
  };
  const { records, events } = isDry ? await keyring.preview(decide) : await keyring.change(decide, sig);
  const revoked = new Set(events.flatMap(({ type, kid }) => (type === "revoked" && kid !== undefined ? [kid] : [])));
  return records.flatMap((record) =>
    isLive(record) || !revoked.has(record.kid) ? [] : [record.trustedUntil ?? record.endedAt],
  );
}
