import { durationText, kidText } from "../../base/format.ts";
import type { StoreDocument } from "../../rotation/custody/document.ts";
import type { Changed } from "../../rotation/manager/store-access.ts";
import {
  type RotationPolicy,
  type RotationPolicyOptions,
  announceForMs,
  policyNames,
  retireForMs,
  rotateEveryMs,
} from "../../rotation/rules/policy.ts";
import { type LiveRecord, liveRecords } from "../../rotation/rules/records.ts";
import { waitOf } from "../../rotation/rules/waits.ts";
import { flagName } from "../../service/config/setting-definitions.ts";
import { Command } from "../command.ts";
import { type Io, print, printJson } from "../io.ts";
import { settingsFrom } from "../settings-options.ts";
import { aligned, indented, printParagraphs, terminalOf } from "../terminal.ts";
import { type ChangeFlags, addWaitFlags, byCommand, changeKeys, checkHasKeys } from "./change-keys.ts";
import { addStoreSettings, readStore, withKeys } from "./open-keys.ts";

export function commandOf(io: Io): Command {
  const command = addWaitFlags(new Command("policy"));
  return addStoreSettings(command, ...policyNames)
    .notes(`
Prints the rotation policy of the store, or changes what the flags say of it.
All processes go by that policy. The same flags of jwksd serve only count in a
store without keys; environment and --config change nothing here. For keys that
are under way, the longest waits of all policies count. A policy that would
break verifications is refused, with the numbers that work.

Examples:
  $ jwksd policy
  $ jwksd policy --rotate-every-days 30 --dry-run
  $ jwksd policy --rotate-every-days 30`)
    .action((flags: ChangeFlags) => policy(io, flags));
}

async function policy(io: Io, flags: ChangeFlags): Promise<void> {
  const settings = await settingsFrom(io, { ...flags });
  const names = policyNames.filter((name) => flags[name] !== undefined);
  const given: RotationPolicyOptions = Object.fromEntries(names.map((name) => [name, settings[name]]));
  // What the flags say is checked together with the policy of the store.
  const others = Object.fromEntries(Object.entries(flags).filter(([name]) => !names.some((other) => other === name)));
  if (names.length === 0) return showPolicy(io, flags);
  await withKeys(io, others, {}, (keys) => {
    checkHasKeys(keys);
    const decide = byCommand(() => ({ type: "policy", policy: given }));
    return changeKeys(keys, { flags, breaks: false, unchanged: "The store has this policy.", remarks }, decide);
  });
}

async function showPolicy(io: Io, flags: ChangeFlags): Promise<void> {
  const { document, isVerified, owner } = await readStore(io, flags);
  const { records, policy } = document;
  const effects = meaningOf(document);
  if (flags.json === true) return printJson(io, { verified: isVerified, policy, effects });
  const { columns } = terminalOf(io);
  const rows = aligned(policyNames.map((name) => [flagName(name), String(policy[name])]));
  const title =
    records.length === 0
      ? `The store holds no keys of ${owner.issuer}. This is the policy of a first start.`
      : `Rotation policy of ${owner.issuer}:`;
  print(io, [...indented(title, columns, 0), "", ...rows].join("\n"));
  printParagraphs(io, effects);
}

const remarks = ({ records, document: { policy } }: Changed): string[] => meaningOf({ records, policy });

function meaningOf({ records, policy }: Pick<StoreDocument, "records" | "policy">): string[] {
  const [sig, enc] = [retireForMs(policy, "sig"), retireForMs(policy, "enc")].map(durationText);
  return [
    `A key is active for ${durationText(rotateEveryMs(policy))}, and is published for ${durationText(announceForMs(policy))} before.`,
    `After that, a signing key is published for ${sig} more, and an encryption key decrypts for ${enc} more.`,
    `A process that cannot reach the store signs for ${durationText(policy.maxStaleSeconds * 1000)} at most.`,
    ...longerWaits(liveRecords(records), policy),
  ];
}

/** The keys under way for which an earlier policy asked for more. */
function longerWaits(records: readonly LiveRecord[], policy: RotationPolicy): string[] {
  return records.flatMap((record) => {
    const { kid, use, state } = record;
    const wait = waitOf(record, policy);
    const forMs = state === "announced" ? announceForMs(policy) : retireForMs(policy, use);
    if (wait === undefined || wait.forMs <= forMs) return [];
    const what = `${use === "sig" ? "Signing" : "Encryption"} key "${kidText(kid)}"`;
    return [`${what} is ${state}, and waits for ${durationText(wait.forMs)}, as an earlier policy had it.`];
  });
}
