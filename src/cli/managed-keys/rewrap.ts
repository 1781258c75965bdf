import { ConfigError } from "../../base/errors.ts";
import { kidText } from "../../base/format.ts";
import type { CustodyOptions } from "../../rotation/custody/custody.ts";
import { movedBy } from "../../rotation/custody/issuer-check.ts";
import { rewrap } from "../../rotation/custody/rewrap.ts";
import { checkAllHave } from "../../rotation/explain/replicas.ts";
import { isLive, uriOf } from "../../rotation/rules/key-records.ts";
import { Command } from "../command.ts";
import { type Io, printNotice } from "../io.ts";
import { type ChangeFlags, addChangeFlags, changeKeys } from "./change-keys.ts";
import { viewOf, withKeys } from "./open-keys.ts";

export function rewrapCommand(io: Io): Command {
  const command = new Command("rewrap").description(
    "Re-encrypt all private keys with the first wrapping key, and recompute the store's MAC. Verifiers are not affected.",
  );
  return addChangeFlags(
    command.option("--yes", "accept a store that is not authentic (check every key yourself first)"),
  )
    .notes(`
To change the wrapping key:
  1. Add the new key as the first line of --wrapping-key-file, and restart every
     jwksd serve process. Until then, jwksd refuses to rewrap.
  2. Run jwksd keys rewrap.
  3. Remove the old key.

If a store was created without --issuer, this command also sets it. If the store
is not authentic, read docs/emergencies.md first: --yes then accepts every key
in the store.

Examples:
  $ jwksd keys rewrap --wrapping-key-file /etc/jwksd/wrapping.key
  $ jwksd keys rewrap --issuer https://login.example.com`)
    .action((flags: ChangeFlags) =>
      withKeys(io, flags, { issuerCheck: movedBy, accepts: acceptConfirmed(io, flags) }, (open) => {
        const { custody } = open;
        const [first] = custody.wrappingKeys;
        const unchanged = `All private keys are already encrypted with the wrapping key ${first}, and the MAC is derived from it.`;
        return custody.movingToFirst(() =>
          changeKeys(open, { flags, breaks: false, unchanged }, async ({ document, now }) => {
            if (custody.movesWrappingKey) checkAllHave(first, await viewOf(open.access));
            return rewrap(document.records, custody, now);
          }),
        );
      }),
    );
}

/** Accepts records that are not authentic, if an operator has checked and confirmed them. */
function acceptConfirmed(io: Io, flags: ChangeFlags): CustodyOptions["accepts"] {
  return (problem, { records }) => {
    if (problem.code !== "ERR_STORE_NOT_AUTHENTIC") return false;
    const live = records.filter(isLive).map((record) => {
      const place = uriOf(record);
      return `\n- ${kidText(record.kid)}, ${record.use} ${record.state}${place === undefined ? "" : `, in ${kidText(place)}`}`;
    });
    if (flags.yes === true || flags.dryRun === true) {
      printNotice(io, `the store is not verified: ${problem.message}; these keys are accepted:${live.join("")}`);
      return true;
    }
    const remedy =
      "nothing was changed; if you recognize each of these keys and know what happened, accept them with --yes";
    throw new ConfigError("ERR_CONFIRMATION", `${remedy}:${live.join("")}\n${problem.message}`);
  };
}
