import { Command } from "commander";
import { systemClock } from "../../base/clock.ts";
import { ConfigError, StateError, StoreError } from "../../base/errors.ts";
import { printable } from "../../base/printable.ts";
import { clocksDiffer } from "../../rotation/manager/clocks.ts";
import type { Seen } from "../../rotation/manager/compare-and-set.ts";
import { type NewKey, applyCommand } from "../../rotation/rules/commands.ts";
import { takenBy } from "../../rotation/custody/issuer-check.ts";
import { activeKey, announcedKey, isLive, recordOf, uriOf } from "../../rotation/rules/records.ts";
import { rewrap } from "../../rotation/custody/rewrap.ts";
import type { CustodyOptions } from "../../rotation/custody/custody.ts";
import { kidText, timeText } from "../../rotation/rules/format.ts";
import type { RotationPolicy } from "../../rotation/rules/policy.ts";
import { withoutWrappingKey } from "../../rotation/rules/replica-settings.ts";
import type { KeyUse } from "../../rotation/store/store.ts";
import { type ChangeFlags, addChangeFlags, changeKeys } from "./change-keys.ts";
import { destroyCommand } from "./destroy-key.ts";
import { exportCommand } from "./export-keys.ts";
import { importCommand } from "./import-keys.ts";
import { errorText } from "../error-text.ts";
import { type Io, tell } from "../io.ts";
import { meantKid } from "../kid.ts";
import { addListFlags, listKeys } from "./list-keys.ts";
import { addNewKeyFlags } from "./make-keys.ts";
import { type Flags, recordsOf, takesKid, withKeys } from "./open-keys.ts";
import { wrappingKeysCommand } from "./wrapping-keys.ts";

type RevokeFlags = ChangeFlags & { readonly lostWrappingKey?: true };

export function keysCommand(io: Io): Command {
  return new Command("keys")
    .addCommand(listCommand(io), { isDefault: true })
    .addCommand(announceCommand(io))
    .addCommand(stepCommand(io, "activate", "Let an announced key sign now; the active key retires."))
    .addCommand(stepCommand(io, "retire", "Retire the active key; the announced key takes its place."))
    .addCommand(stepCommand(io, "remove", "Remove a retiring or announced key, for good."))
    .addCommand(revokeCommand(io))
    .addCommand(destroyCommand(io))
    .addCommand(importCommand(io))
    .addCommand(exportCommand(io))
    .addCommand(rewrapCommand(io))
    .addCommand(wrappingKeysCommand(io))
    .addHelpText(
      "after",
      `
The options of the list, such as --data and --all: jwksd help keys list.

jwksd serve takes each planned step by itself; these commands are for everything
else. Commands that change keys have --dry-run, which prints the exact change
and what it means for verifiers. All commands have --json. A jwksd serve on the
same store takes up a change within a second. Exit code 3: the change is done,
and not every replica has followed within --wait (jwksd replicas).

Examples:
  $ jwksd keys                        list the keys, and the next step of each
  $ jwksd keys revoke KID --dry-run   until when caches may trust a leaked key
  $ jwksd keys import key.pem         take over a key from elsewhere
  $ jwksd help keys import            the options of one command`,
    );
}

function listCommand(io: Io): Command {
  const command = new Command("list").description("List the managed keys, as jwksd keys without a command does.");
  return addListFlags(command)
    .addHelpText(
      "after",
      `
A key in an HSM or key service has its URI below it; --json has the URI as uri.
The next step of a key follows from the policy of the jwksd serve that joined
the store last; flags, environment and --config come first. jwksd help serve
lists them.`,
    )
    .allowExcessArguments()
    .action((flags: Flags) => {
      // `jwksd keys` lists the keys, and takes no arguments: an argument is the name of an unknown command.
      const [unknown] = command.args;
      if (unknown !== undefined)
        command.error(`error: unknown command '${unknown}'; jwksd help keys lists the commands`);
      return listKeys(io, flags);
    });
}

function announceCommand(io: Io): Command {
  const command = new Command("announce").description(
    "Publish a new key. It becomes active when every cache knows it; the first signing or encryption key, at once.",
  );
  return addChangeFlags(addNewKeyFlags(command))
    .addHelpText(
      "after",
      `
Examples:
  $ jwksd keys announce               the next signing key, as jwksd rotate does
  $ jwksd keys announce --use enc     the first encryption key, or the next one`,
    )
    .action((flags: ChangeFlags & { readonly use: KeyUse; readonly alg?: string }) =>
      withKeys(io, flags, {}, async (open) => {
        const newKey = { use: flags.use, alg: flags.alg };
        await changeKeys(open, { flags, breaks: false, newKey }, (records, now, key) =>
          applyCommand(records, { type: "announce", key: key as NewKey }, open.keyring.policy, now),
        );
      }),
    );
}

const destroyHelp = `
With --destroy-external, a key in an HSM or key service is also destroyed there,
for good, even an imported key that jwksd did not make. --dry-run names the key.
`;

function stepCommand(io: Io, type: "activate" | "retire" | "remove", description: string): Command {
  return addChangeFlags(takesKid(new Command(type).description(description)), { force: true })
    .addHelpText(
      "after",
      `
A step that would break verifications is refused; the message says when the step
will be safe. --force --yes takes it now.
${type === "remove" ? destroyHelp : ""}
Examples:
  $ jwksd keys ${type} KID --dry-run
  $ jwksd keys ${type} KID
  $ jwksd keys ${type} KID --force --yes`,
    )
    .action((given: string, flags: ChangeFlags) =>
      withKeys(io, flags, {}, async (open) => {
        const kid = meantKid(await recordsOf(open.custody.store), given);
        const force = flags.force === true;
        const { policy } = open.keyring;
        await changeKeys(open, { flags, breaks: force }, (records, now, _key, seen) => {
          const change = applyCommand(records, { type, kid, force }, policy, now);
          if (!force && clocksDiffer(seen, systemClock, policy.clockSkewSeconds * 1000)) throw uncertain(policy);
          return change;
        });
      }),
    );
}

/** A process that has just begun knows no other clock that could tell which of the two is wrong. */
function uncertain({ clockSkewSeconds }: RotationPolicy): StateError {
  return new StateError(
    "ERR_TOO_EARLY",
    `nothing was changed, because the step may be too early: the clocks of this machine and of the store differ by more than clockSkewSeconds ${clockSkewSeconds}; set them, or leave the step to jwksd serve, or take it now with --force --yes`,
  );
}

function revokeCommand(io: Io): Command {
  const command = new Command("revoke").description(
    "Remove a key at once and for good, because others may know its private half.",
  );
  const help = "the wrapping key of the store is lost: new keys are wrapped under the one that is given";
  return addChangeFlags(takesKid(command.option("--lost-wrapping-key", help)), { yes: true })
    .addHelpText(
      "after",
      `
If the key was active, the announced key takes its place, else a new key. Caches
may trust the revoked key for up to 7,200 seconds, or 300 if the rotation mode
(--rotation-mode, or a rotation) has been on for 7,200. --dry-run prints which.
${destroyHelp}
Examples:
  $ jwksd keys revoke KID --dry-run
  $ jwksd keys revoke KID --yes`,
    )
    .action((given: string, flags: RevokeFlags) => {
      const passesOverLost = flags.lostWrappingKey === true;
      return withKeys(io, flags, { accepts: lost(io, flags), passesOverLost }, async (open) => {
        const records = await recordsOf(open.custody.store);
        const kid = meantKid(records, given);
        const { use } = recordOf(records, kid);
        const isNeeded = activeKey(records, use)?.kid === kid && announcedKey(records, use) === undefined;
        const newKey = isNeeded ? { use } : undefined;
        if (passesOverLost) tell(io, "a jwksd serve that has other wrapping keys than this command cannot follow");
        await changeKeys(open, { flags, breaks: true, newKey }, (records, now, replacement) =>
          applyCommand(records, { type: "revoke", kid, replacement }, open.keyring.policy, now),
        );
      });
    });
}

function rewrapCommand(io: Io): Command {
  const command = new Command("rewrap").description(
    "Encrypt all private keys again under the first wrapping key, and make the MAC of the store anew. Verifiers do not notice.",
  );
  return addChangeFlags(command.option("--yes", "accept a store that is not authentic; check every key first"))
    .addHelpText(
      "after",
      `
To change the wrapping key:
  1. Add a new one as the first line of --wrapping-key-file, and restart every
     jwksd serve. Until then, rewrap is refused.
  2. Run jwksd keys rewrap.
  3. Remove the old one.

It also sets the first --issuer of a store that was made without one. If the
store is not authentic, read docs/operations.md first. --yes then vouches for
every key in it.

Examples:
  $ jwksd keys rewrap --wrapping-key-file /etc/jwksd/wrapping.key
  $ jwksd keys rewrap --issuer https://login.example.com`,
    )
    .action((flags: ChangeFlags) =>
      withKeys(io, flags, { issuerCheck: takenBy, movesToFirst: true, accepts: vouching(io, flags) }, (open) => {
        const [first] = open.custody.wrappingKeys;
        const unchanged = `The wrapping key ${first} encrypts all private keys, and makes the MAC.`;
        return changeKeys(open, { flags, breaks: false, unchanged }, async (records, now, _key, seen) => {
          const change = await rewrap(records, open.custody, now, "an operator moved it under the first wrapping key");
          if (open.custody.movesWrappingKey) checkAllHave(first, seen);
          return { ...change, leases: seen.leases };
        });
      }),
    );
}

/** A replica that lacks the wrapping key of the store could read it no more. @throws StateError `ERR_TRANSITION` */
function checkAllHave(wrappingKey: string, { leases, now }: Seen): void {
  const behind = withoutWrappingKey(leases, wrappingKey);
  if (behind.length === 0) return;
  const names = behind.map(
    ({ name, id, until }) =>
      `"${printable(name)}" (${id.slice(0, 8)}; its lease ${until > now ? `ends at ${timeText(until)}` : "has run out"})`,
  );
  throw new StateError(
    "ERR_TRANSITION",
    `nothing was changed: rewrap puts the store under the wrapping key ${wrappingKey}, and these replicas do not say that they have it: ${names.join(", ")}; add it there, restart them, and try again; if one does not run any more, a jwksd serve that runs gives up its lease when it has seen no renewal for as long as the lease lasts`,
  );
}

/** An operator who has looked can vouch for records that are not authentic. */
function vouching(io: Io, flags: ChangeFlags): CustodyOptions["accepts"] {
  return once((problem, { records }) => {
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
  });
}

/** Where the wrapping key is lost, nobody can verify what is in the store. */
function lost(io: Io, flags: RevokeFlags): CustodyOptions["accepts"] {
  return once((problem) => {
    if (problem.code !== "ERR_WRAPPING_KEY_MISSING") return false;
    if (flags.lostWrappingKey === true) {
      tell(io, `not verified: ${errorText(problem)}; revoke every key that jwksd keys shows`);
      return true;
    }
    throw new StoreError(problem.code, `nothing was changed: ${problem.message}`, { cause: problem });
  });
}

/** Asks and tells once, however often the same is loaded. */
function once(accepts: NonNullable<CustodyOptions["accepts"]>): NonNullable<CustodyOptions["accepts"]> {
  let accepted: string | undefined;
  return (problem, snapshot) => {
    const { revision, records, mac } = snapshot;
    const text = JSON.stringify([revision, records, mac]);
    const isAccepted = text === accepted || accepts(problem, snapshot);
    if (isAccepted) accepted = text;
    return isAccepted;
  };
}
