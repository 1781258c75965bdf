import { ConfigError, StateError } from "../../base/errors.ts";
import { kidText, someOf, timeText } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import type { CustodyOptions } from "../../rotation/custody/custody.ts";
import { movedBy } from "../../rotation/custody/issuer-check.ts";
import { rewrap } from "../../rotation/custody/rewrap.ts";
import { type StoreView, lastCheckInText, replicaStatus, unreadTexts } from "../../rotation/explain/replicas.ts";
import { isLive, uriOf } from "../../rotation/rules/records.ts";
import { Command } from "../command.ts";
import { type Io, tell } from "../io.ts";
import { type ChangeFlags, addChangeFlags, changeKeys } from "./change-keys.ts";
import { viewOf, withKeys } from "./open-keys.ts";

export function rewrapCommand(io: Io): Command {
  const command = new Command("rewrap").description(
    "Encrypt all private keys again under the first wrapping key, and make the MAC of the store anew. Verifiers do not notice.",
  );
  return addChangeFlags(command.option("--yes", "accept a store that is not authentic; check every key first"))
    .notes(`
To change the wrapping key:
  1. Add a new one as the first line of --wrapping-key-file, and restart every
     jwksd serve. Until then, rewrap is refused.
  2. Run jwksd keys rewrap.
  3. Remove the old one.

It also sets the first --issuer of a store that was made without one. If the
store is not authentic, read docs/emergencies.md first. --yes then vouches for
every key in it.

Examples:
  $ jwksd keys rewrap --wrapping-key-file /etc/jwksd/wrapping.key
  $ jwksd keys rewrap --issuer https://login.example.com`)
    .action((flags: ChangeFlags) =>
      withKeys(io, flags, { issuerCheck: movedBy, movesToFirst: true, accepts: vouching(io, flags) }, (open) => {
        const [first] = open.custody.wrappingKeys;
        const unchanged = `The wrapping key ${first} encrypts all private keys, and makes the MAC.`;
        return changeKeys(open, { flags, breaks: false, unchanged }, async ({ document, now }) => {
          if (open.custody.movesWrappingKey) checkAllHave(first, await viewOf(open.access));
          return rewrap(document.records, open.custody, now, "an operator moved it under the first wrapping key");
        });
      }),
    );
}

/** A replica without the store's wrapping key could no longer read it. @throws StateError `ERR_TRANSITION` */
function checkAllHave(wrappingKey: string, view: StoreView): void {
  const lacking = view.processes.filter(({ wrappingKeys }) => !wrappingKeys.includes(wrappingKey));
  const names = someOf(lacking, (line) => {
    const { name, staleAt } = replicaStatus(line, view);
    return `"${printable(name)}" (last check-in ${lastCheckInText(line, view)}; if it no longer runs, not listed from ${timeText(staleAt)} on)`;
  });
  const faults = [
    ...(lacking.length === 0
      ? []
      : [`these replicas do not have it: ${names}; add it there, restart them, and try again`]),
    ...unreadTexts(view).map(
      (text) => `not every replica is known: ${text} Running processes remove old records; try again later`,
    ),
  ];
  const rule = `nothing was changed: rewrap puts the store under the wrapping key ${wrappingKey}, and`;
  for (const fault of faults) throw new StateError("ERR_TRANSITION", `${rule} ${fault}`);
}

/** An operator who has looked can vouch for records that are not authentic. */
function vouching(io: Io, flags: ChangeFlags): CustodyOptions["accepts"] {
  return (problem, { records }) => {
    if (problem.code !== "ERR_STORE_NOT_AUTHENTIC") return false;
    const live = records.filter(isLive).map((record) => {
      const place = uriOf(record);
      return `\n- ${kidText(record.kid)}, ${record.use} ${record.state}${place === undefined ? "" : `, in ${kidText(place)}`}`;
    });
    if (flags.yes === true || flags.dryRun === true) {
      tell(io, `not verified: ${problem.message}; taken as they are:${live.join("")}`);
      return true;
    }
    const rule =
      "nothing was changed; if you know each of these keys and what has happened, --yes takes them as they are";
    throw new ConfigError("ERR_CONFIRMATION", `${rule}:${live.join("")}\n${problem.message}`);
  };
}
