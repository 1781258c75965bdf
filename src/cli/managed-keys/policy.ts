import { durationText, kidText } from "../../base/format.ts";
import type { StoreDocument } from "../../rotation/custody/document.ts";
import type { Changed } from "../../rotation/manager/store-access.ts";
import { type LiveRecord, liveRecords } from "../../rotation/rules/key-records.ts";
import {
  type RotationPolicy,
  type RotationPolicyOptions,
  announceForMs,
  policyNames,
  retireForMs,
  rotateEveryMs,
} from "../../rotation/rules/policy.ts";
import { waitOf } from "../../rotation/rules/waits.ts";
import { flagName } from "../../service/config/setting-definitions.ts";
import { Command } from "../command.ts";
import { type Io, print, printJson } from "../io.ts";
import { settingsFrom } from "../setting-flags.ts";
import { aligned, indented, printParagraphs, terminalOf } from "../terminal.ts";
import { type ChangeFlags, addWaitFlags, byCommand, changeKeys, checkHasKeys } from "./change-keys.ts";
import { addStoreSettings, readStore, withKeys } from "./open-keys.ts";

export function commandOf(io: Io): Command {
  const command = addWaitFlags(new Command("policy"));
  return addStoreSettings(command, ...policyNames)
    .notes(`
Prints the store's rotation policy or, if flags are given, changes it. All
processes use this policy. The same flags in jwksd serve apply only to a store
without keys; the environment and --config do not change the policy. If a key's
waiting period has begun, the longest period under any policy since then
applies. jwksd rejects a policy that would make valid tokens fail, and the
message suggests values that work.

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
  // The policy flags are checked later, together with the store's policy.
  const others = Object.fromEntries(Object.entries(flags).filter(([name]) => !names.some((other) => other === name)));
  if (names.length === 0) return showPolicy(io, flags);
  await withKeys(io, others, {}, (keys) => {
    checkHasKeys(keys);
    const decide = byCommand(() => ({ type: "policy", policy: given }));
    return changeKeys(keys, { flags, breaks: false, unchanged: "The store already has this policy.", remarks }, decide);
  });
}

async function showPolicy(io: Io, flags: ChangeFlags): Promise<void> {
  const { document, isVerified, owner } = await readStore(io, flags);
  const { records, policy } = document;
  const effects = effectsOf(document);
  if (flags.json === true) return printJson(io, { verified: isVerified, policy, effects });
  const { columns } = terminalOf(io);
  const rows = aligned(policyNames.map((name) => [flagName(name), String(policy[name])]));
  const title =
    records.length === 0
      ? `The store has no keys for ${owner.issuer}. This is the policy for the first start.`
      : `Rotation policy for ${owner.issuer}:`;
  print(io, [...indented(title, columns, 0), "", ...rows].join("\n"));
  printParagraphs(io, effects);
}

const remarks = ({ records, document: { policy } }: Changed): string[] => effectsOf({ records, policy });

function effectsOf({ records, policy }: Pick<StoreDocument, "records" | "policy">): string[] {
  const [sig, enc] = [retireForMs(policy, "sig"), retireForMs(policy, "enc")].map(durationText);
  return [
    `A key is active for ${durationText(rotateEveryMs(policy))}, and published for ${durationText(announceForMs(policy))} before that.`,
    `Afterwards, a signing key stays published for another ${sig}, and an encryption key keeps decrypting for another ${enc}.`,
    `A process that cannot reach the store keeps signing for at most ${durationText(policy.maxStaleSeconds * 1000)}.`,
    ...longerWaits(liveRecords(records), policy),
  ];
}

/** Returns a message for each key that must wait longer because of an earlier policy. */
function longerWaits(records: readonly LiveRecord[], policy: RotationPolicy): string[] {
  return records.flatMap((record) => {
    const { kid, use, state } = record;
    const wait = waitOf(record, policy);
    const forMs = state === "announced" ? announceForMs(policy) : retireForMs(policy, use);
    if (wait === undefined || wait.forMs <= forMs) return [];
    const key = `${use === "sig" ? "Signing" : "Encryption"} key "${kidText(kid)}"`;
    return [`${key} stays ${state} for ${durationText(wait.forMs)}, because an earlier policy required it.`];
  });
}
