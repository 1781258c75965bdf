import { mapInParallel } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { relativeText, timeText } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import { type IssuerStatus, issuerStatus, startOf } from "../../rotation/explain/issuer-status.ts";
import { Command } from "../command.ts";
import { type Io, iso, print, printJson } from "../io.ts";
import type { Flags } from "../managed-keys/open-keys.ts";
import { addSettings } from "../setting-flags.ts";
import { aligned, printParagraphs } from "../terminal.ts";
import { inParallel, issuersSettings, withIssuers } from "./open-issuers.ts";
import { revokeKeysCommand } from "./revoke-all-keys.ts";

export function commandOf(io: Io): Command {
  // The command and its subcommand share some flags.
  const command = new Command("issuers").enablePositionalOptions().addCommand(revokeKeysCommand(io));
  return addSettings(command.option("--json", "JSON output"), issuersSettings)
    .notes(`
Reads and verifies every issuer's keys in the database, whether createIssuers or
jwksd serve manages them. Failing issuers come first, then the overdue ones,
whose next step has been due for more than two hours, and then the others,
ordered by the time of their next step. Exit code 1: at least one issuer is
failing or overdue.

The databases that can list their issuers are PostgreSQL, MySQL, MariaDB, libSQL
and etcd. To examine one issuer, run: jwksd keys --issuer ISSUER

Examples:
  $ jwksd issuers --store postgres://jwksd@db.example/jwksd
  $ jwksd issuers --json |
      jq -r '.issuers[] | select(.state == "failing") | .issuer'`)
    .action((flags: Flags) => listIssuers(io, flags));
}

async function listIssuers(io: Io, flags: Flags): Promise<void> {
  const found = await withIssuers(io, flags, ({ database, wrappingKeys, listed }) =>
    mapInParallel(listed, inParallel, (row) =>
      issuerStatus(row, (issuer) => database.forIssuer(issuer), wrappingKeys, systemClock),
    ),
  );
  const issuers = found.toSorted((one, other) => rankOf(one) - rankOf(other) || dueAt(one) - dueAt(other));
  const [failing, overdue] = (["failing", "overdue"] as const).map(
    (state) => issuers.filter((issuer) => issuer.state === state).length,
  );
  if (failing !== 0 || overdue !== 0) io.exitCode = 1;
  if (flags["json"] === true)
    return printJson(io, { count: issuers.length, failing, overdue, issuers: issuers.map(asJson) });
  if (issuers.length === 0) return print(io, "The database has no issuers.");
  const now = systemClock.now();
  const [heading = "", ...lines] = aligned([
    ["STATE", "KEYS", "NEXT STEP (UTC)"],
    ...issuers.map(({ state, keys, nextStep }) => [
      state,
      keys.length === 0 ? "-" : keys.map((key) => `${key.use === "enc" ? "enc " : ""}${key.state}`).join(", "),
      stepText(nextStep, now),
    ]),
  ]);
  print(
    io,
    [
      heading,
      ...issuers.flatMap(({ issuer, error }, index) => [
        lines[index] ?? "",
        `     ${printable(issuer)}`,
        ...(error === undefined ? [] : [`     ${printable(error.message)} [${error.code}]`]),
      ]),
    ].join("\n"),
  );
  printParagraphs(io, [`Total: ${issuers.length.toLocaleString("en")}. Failing: ${failing}. Overdue: ${overdue}.`]);
}

const ranks: Readonly<Record<IssuerStatus["state"], number>> = { failing: 0, overdue: 1, ok: 2, decommissioned: 3 };
const rankOf = ({ state }: IssuerStatus): number => ranks[state];

const dueAt = ({ nextStep }: IssuerStatus): number => (nextStep === undefined ? 0 : startOf(nextStep));

function stepText(step: IssuerStatus["nextStep"], now: number): string {
  if (step === undefined) return "-";
  if (step.at === undefined) return `${step.step} after a waiting period that has not begun yet`;
  return `${step.step} ${timeText(step.at).slice(0, 16)}, ${relativeText(step.at, now)}`;
}

function asJson({ issuer, state, keys, nextStep, error }: IssuerStatus): object {
  const { at, blockedSince, ...step } = nextStep ?? {};
  const times = {
    at: at === undefined ? null : iso(at),
    blockedSince: blockedSince === undefined ? null : iso(blockedSince),
  };
  return { issuer, state, keys, nextStep: nextStep === undefined ? null : { ...step, ...times }, error: error ?? null };
}
