import { Command } from "commander";
import { StoreError } from "../../base/errors.ts";
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
