import { timeText } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import { count } from "../argument-parsers.ts";
import { Command } from "../command.ts";
import { type Io, iso, print, printJson } from "../io.ts";
import { indented, terminalOf } from "../terminal.ts";
import { eventText } from "./change-report.ts";
import { type Flags, addStoreSettings, readStore } from "./open-keys.ts";

type EventsFlags = Flags & { readonly limit: number };

export function commandOf(io: Io): Command {
  const command = new Command("events").option("--limit <count>", "number of events", count, 20);
  return addStoreSettings(command)
    .notes(`
The store keeps about the last hundred events. The jwksd serve log has all of
them.

Examples:
  $ jwksd events
  $ jwksd events --limit 1000 --json | jq '.[] | select(.type == "revoked")'`)
    .action((flags: EventsFlags) => events(io, flags));
}

async function events(io: Io, flags: EventsFlags): Promise<void> {
  const { document } = await readStore(io, flags);
  const found = document.events.slice(-flags.limit).toReversed();
  if (flags["json"] === true) {
    return printJson(
      io,
      found.map((event) => ({ ...event, at: iso(event.at) })),
    );
  }
  const { columns } = terminalOf(io);
  const width = String(found[0]?.number ?? 0).length;
  for (const event of found) {
    const { number, at, reason } = event;
    const heading = `${String(number).padStart(width)}  ${timeText(at)}  ${printable(eventText(event))}`;
    print(io, [heading, ...indented(printable(reason), columns, width + 2)].join("\n"));
  }
  if (found.length === 0) print(io, "There are no events.");
}
