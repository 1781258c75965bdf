import { readFile } from "node:fs/promises";
import { RotationError, asJwksdError, invalidOption } from "../../base/errors.ts";
import { reading } from "../../base/file-errors.ts";
import { isDate, timeText } from "../../base/format.ts";
import { jsonOf } from "../../base/json.ts";
import { printable } from "../../base/printable.ts";
import type { StoreDocument } from "../../rotation/custody/document.ts";
import { type KeyRecord, isDecommissioned, liveRecords } from "../../rotation/rules/key-records.ts";
import { Command } from "../command.ts";
import { errorText } from "../error-text.ts";
import { type Io, iso, print, printNotice } from "../io.ts";
import {
  type ChangeFlags,
  type DecideWithKey,
  addChangeFlags,
  byCommand,
  changeKeys,
} from "../managed-keys/change-keys.ts";
import { withKeys } from "../managed-keys/open-keys.ts";

interface DecommissionFlags extends ChangeFlags {
  readonly now?: true;
  readonly from?: string;
}

/** A line of output that can be used to decommission the issuer again. */
interface DecommissionLine {
  readonly issuer: string;
  readonly now: boolean;
  /** Time at which the issuer was decommissioned. It distinguishes that issuer from a later one with the same name. */
  readonly at: string;
}

export function commandOf(io: Io): Command {
  const command = new Command("decommission")
    .option("--now", "revoke all keys, even if the issuer has already been decommissioned")
    .option("--from <file>", "decommission each issuer listed in a file that contains lines printed by this command");
  return addChangeFlags(command, { yes: true }, "destroyExternal")
    .notes(`
Nothing signs for the issuer anymore, and its keys never sign again. Each
key stays published until its last token has expired, so no valid token fails.
With --now, all keys are revoked; caches may trust them for a while, and
--dry-run prints how long. After that, /jwks contains one key, which never
signs anything.

No process generates a key for the issuer. If the same customer returns, jwksd
rotate generates one, but only once no cache trusts the earlier keys and their
last token has expired (ERR_ISSUER_DECOMMISSIONED).

Keep the last line of the output somewhere outside the store: a backup made
before this command ran still has the issuer's keys, and a process started on
it would sign again. After you restore a backup like that, repeat the command
with --from FILE before any process starts. If the issuer's name was reused in
the meantime, the command refuses to decommission it.

Examples:
  $ jwksd decommission --dry-run
  $ jwksd decommission --yes | tee -a decommissioned.txt
  $ jwksd decommission --now --yes
  $ jwksd decommission --from decommissioned.txt --yes`)
    .action((flags: DecommissionFlags) =>
      flags.from === undefined ? decommissionIssuer(io, flags) : decommissionAll(io, flags, flags.from),
    );
}

/**
 * Decommissions one issuer.
 *
 * @param decommissionedAt time at which the issuer was first decommissioned, in epoch milliseconds. Default:
 * `Infinity`, which disables the check for a reused name
 */
function decommissionIssuer(io: Io, flags: DecommissionFlags, decommissionedAt = Infinity): Promise<void> {
  const { now = false } = flags;
  return withKeys(io, flags, {}, (open) => {
    const { custody, document } = open;
    const unchanged = isDecommissioned(document.records) ? "The issuer has already been decommissioned." : undefined;
    const breaks = "the issuer's keys would never sign again";
    const decommission = byCommand(() => ({ type: "decommission", now }));
    const decide: DecideWithKey = (seen, key) => {
      checkSameIssuer(seen.document, decommissionedAt);
      return decommission(seen, key);
    };
    return changeKeys(
      open,
      {
        flags,
        breaks,
        unchanged,
        remarks: ({ before, records, document: { policy }, seen }) =>
          effectsOnIssuer(before, records, seen.now + policy.maxStaleSeconds * 1000),
        keep: ({ seen }): DecommissionLine => ({ issuer: custody.owner.issuer, now, at: iso(seen.now) }),
      },
      decide,
    );
  });
}

/**
 * Refuses to repeat the command for an issuer whose keys were all generated after the issuer was decommissioned. In
 * that case, the issuer's name must have been reused: if a backup made before the command ran had been restored, there
 * would be earlier keys, too.
 *
 * @throws RotationError `ERR_TRANSITION`
 */
function checkSameIssuer({ records, policy }: StoreDocument, decommissionedAt: number): void {
  const live = liveRecords(records);
  const latestMs = decommissionedAt + policy.clockSkewSeconds * 1000;
  if (live.length === 0 || live.some(({ announcedAt }) => announcedAt <= latestMs)) return;
  throw new RotationError(
    "ERR_TRANSITION",
    `the issuer's name has been reused: all of its keys were generated after it was decommissioned at ${timeText(decommissionedAt)}; remove the line from the file, or decommission the issuer with --issuer`,
  );
}

/** Returns the effects of decommissioning an issuer, apart from those on its keys. */
function effectsOnIssuer(before: readonly KeyRecord[], records: readonly KeyRecord[], staleAt: number): string[] {
  const when = liveRecords(records).length === 0 ? "From now on" : "Once the last key is removed";
  const set = `${when}, /jwks contains one key, which never signs anything.`;
  if (isDecommissioned(before)) return [set];
  const until = timeText(staleAt);
  return [
    `Signing fails (ERR_SIGNER_DECOMMISSIONED) in each process as soon as that process reads this change, and everywhere by ${until}.`,
    `From now on, a process whose version of jwksd cannot read format 2 rejects the store (ERR_STORE_FORMAT): it keeps publishing the keys that it has and stops signing by ${until}. Update these processes first; to list their versions, run jwksd replicas.`,
    set,
  ];
}

/**
 * Decommissions each issuer in a file. If one fails, the others are still decommissioned.
 *
 * @throws ConfigError `ERR_OPTION_INVALID` if a line is invalid
 */
async function decommissionAll(io: Io, flags: DecommissionFlags, file: string): Promise<void> {
  for (const { issuer, now, at } of linesOf(await reading(file, () => readFile(file, "utf8")), file)) {
    if (flags.json !== true) print(io, `${printable(issuer)}:`);
    const isNow = now || flags.now === true;
    await decommissionIssuer(io, { ...flags, issuer, ...(isNow && { now: true }) }, Date.parse(at)).catch(
      (error: unknown) => {
        io.exitCode = 1;
        printNotice(io, `${printable(issuer)}: ${errorText(asJwksdError(error))}`);
      },
    );
  }
}

/** Returns the lines to keep from this command's output, which may be text or JSON. */
function linesOf(text: string, file: string): readonly DecommissionLine[] {
  const found = text.split("\n").flatMap((line): DecommissionLine[] => {
    if (!line.startsWith("{")) return [];
    const json = (jsonOf(line) ?? {}) as { readonly keep?: Partial<DecommissionLine> } & Partial<DecommissionLine>;
    const { issuer, now, at } = json.keep ?? json;
    if (typeof issuer === "string" && typeof now === "boolean" && typeof at === "string" && isDate(Date.parse(at)))
      return [{ issuer, now, at }];
    throw invalidOption(`${file} contains an invalid line: ${JSON.stringify(line.slice(0, 80))}`);
  });
  if (found.length === 0) throw invalidOption(`${file} contains no lines printed by jwksd decommission`);
  return found;
}
