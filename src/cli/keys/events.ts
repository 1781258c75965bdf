import { Command } from "commander";
import { printable } from "../../base/printable.ts";
import { isEvent } from "../../rotation/rules/audit-log.ts";
import { kidText, timeText } from "../../rotation/rules/format.ts";
import { indented, terminalOf } from "../terminal.ts";
import { count } from "../arguments.ts";
import { type Io, iso, print, printJson, tell } from "../io.ts";
import { type Flags, addLookSettings, withStore } from "./open-keys.ts";

type EventsFlags = Flags & { readonly limit: number; readonly before?: number };

export function eventsCommand(io: Io): Command {
  const command = new Command("events")
    .option("--limit <count>", "how many events to print", count, 20)
    .option("--before <number>", "print events before this number, to read the next page", count);
  return addLookSettings(command)
    .addHelpText(
      "after",
      `
Examples:
  $ jwksd events
  $ jwksd events --limit 1000 --json | jq '.[] | select(.type == "revoked")'`,
    )
    .action((flags: EventsFlags) => events(io, flags));
}

async function events(io: Io, flags: EventsFlags): Promise<void> {
  const { limit, before } = flags;
  const rows = await withStore(io, flags, (store) => {
    tell(io, "what is shown is not verified: the MAC of the store covers its keys, not its audit log");
    return store.events({ limit, before });
  });
  const found = rows.filter(isEvent);
  if (found.length < rows.length)
    tell(io, `${rows.length - found.length} rows of the audit log are no events, and are left out`);
  if (flags["json"] === true) {
    const shown = found.map(({ number, at, type, kid, use, reason }) => ({
      number,
      at: iso(at),
      type,
      use,
      kid,
      reason,
    }));
    return printJson(io, shown);
  }
  const { columns } = terminalOf(io.stdout, io.environment);
  const width = String(found[0]?.number ?? 0).length;
  for (const { number, at, type, kid, use, reason } of found) {
    const heading = `${String(number).padStart(width)}  ${timeText(at)}  ${printable(type)} ${printable(use)} ${kidText(kid)}`;
    print(io, [heading, ...indented(printable(reason), columns, width + 2)].join("\n"));
  }
  if (found.length === 0) print(io, "There are no events.");
}
