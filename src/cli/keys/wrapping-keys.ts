import { Command } from "commander";
import { printable } from "../../base/printable.ts";
import { StateError, StoreError } from "../../base/errors.ts";
import { timeText } from "../../rotation/rules/format.ts";
import { isPermanent } from "../../rotation/rules/permanent-lease.ts";
import { hasWrappingKey } from "../../rotation/rules/replica-settings.ts";
import type { Snapshot } from "../../rotation/store/store.ts";
import { runningLeases } from "../../service/admin/replicas.ts";
import { createCommandLog } from "../../service/config/log.ts";
import { wrappingKeysOf } from "../../service/config/open-store.ts";
import { type Io, print, printJson } from "../io.ts";
import { settingsFrom } from "../settings-options.ts";
import { type Flags, addLookSettings } from "./open-keys.ts";

/** Messages name wrapping keys by their ids. */
export function wrappingKeysCommand(io: Io): Command {
  const command = new Command("wrapping-keys").description(
    "Print the ids of the given wrapping keys, the one that encrypts first. Needs no store.",
  );
  return addLookSettings(command)
    .addHelpText(
      "after",
      `
Examples:
  $ jwksd keys wrapping-keys --wrapping-key-file /etc/jwksd/wrapping.key`,
    )
    .action(async (flags: Flags) => {
      const settings = await settingsFrom(io, { ...flags });
      const keys = await wrappingKeysOf(settings, createCommandLog(settings.logLevel, settings.jsonLogs, io));
      if (keys === undefined) {
        throw new StoreError(
          "ERR_WRAPPING_KEY_MISSING",
          "no wrapping key is given; name a file with --wrapping-key-file, or set JWKSD_WRAPPING_KEYS",
        );
      }
      const ids = keys.map(({ id }) => id);
      if (flags["json"] === true) printJson(io, ids);
      else print(io, ids.join("\n"));
    });
}

/** A replica that lacks the wrapping key would lose its keys. @throws StateError `ERR_TRANSITION` */
export function checkHaveWrappingKey({ leases, now }: Pick<Snapshot, "leases" | "now">, id: string): void {
  const behind = runningLeases(leases, now).find((lease) => !isPermanent(lease) && !hasWrappingKey(lease, id));
  if (behind === undefined) return;
  const name = `the replica "${printable(behind.name)}"`;
  const lacks =
    behind.settings === undefined
      ? `${name} does not say whether it has the wrapping key ${id}; update jwksd there`
      : `${name} does not have the wrapping key ${id}; add it there as the second line of --wrapping-key-file or JWKSD_WRAPPING_KEYS`;
  throw new StateError(
    "ERR_TRANSITION",
    `nothing was changed: ${lacks}, restart it, and run this again; if it does not run any more, its lease ends at ${timeText(behind.until)}`,
  );
}
