import { Command } from "commander";
import {
  type ReplicasAt,
  type WaitStatus,
  drainingKids,
  lastSeenText,
  publishesText,
  reliedOnText,
  replicaStatus,
  unsignedTexts,
  waitsOf,
} from "../../service/admin/replicas.ts";
import { aligned, indented, terminalOf } from "../terminal.ts";
import { printable } from "../../base/printable.ts";
import { kidText } from "../../rotation/rules/format.ts";
import { drainSeconds } from "../../rotation/rules/policy.ts";
import { isPermanent } from "../../rotation/rules/permanent-lease.ts";
import type { Lease } from "../../rotation/store/store.ts";
import { endCopyCommand } from "./end-copy.ts";
import { type Io, iso, print, printJson } from "../io.ts";
import { type Flags, type StoreContent, addLookSettings, look } from "./open-keys.ts";

export function replicasCommand(io: Io): Command {
  const command = new Command("replicas");
  // This command and its subcommand have the same flags.
  return addLookSettings(command.enablePositionalOptions().addCommand(endCopyCommand(io)))
    .addHelpText(
      "after",
      `
Each jwksd serve and each key manager is a replica with a lease in the store. A
step waits until every replica has followed, or its lease has ended. A process
that is stopped gives up its lease. A dead one delays steps by one lease
(--lease-seconds). A copy that jwksd publish wrote is served without a process,
so its lease stays until jwksd replicas end ends it. The MAC of the store covers
its keys, not its replicas.

Examples:
  $ jwksd replicas
  $ jwksd replicas --json | jq '.replicas[] | select(.behind != 0) | .name'`,
    )
    .action((flags: Flags) => replicas(io, flags));
}

async function replicas(io: Io, flags: Flags): Promise<void> {
  const found = await look(io, flags);
  if (flags["json"] === true) {
    const { isVerified, replicas } = found;
    const { revision, leases } = replicas;
    const json = {
      verified: isVerified,
      revision,
      replicas: leases.map((lease) => replicaJson(lease, replicas)),
      waits: waitsJson(found),
    };
    return printJson(io, json);
  }
  const { columns } = terminalOf(io.stdout, io.environment);
  print(io, table(found).join("\n"));
  printWaits(io, found, columns);
}

function table(found: StoreContent): string[] {
  const { replicas, records } = found;
  const { leases } = replicas;
  const isReplaced = (kid: string): boolean =>
    records.some((record) => record.kid === kid && record.state === "retiring");
  if (leases.length === 0) return ["No replica runs."];
  const named = (name: string): readonly Lease[] => leases.filter((lease) => lease.name === name);
  const isTwin = ({ name }: Lease): boolean => named(name).length > 1;
  const newest = (name: string): Lease | undefined => named(name).toSorted((a, b) => seenAt(b) - seenAt(a))[0];
  const seenAt = (lease: Lease): number => replicaStatus(lease, replicas).lastSeenAt;
  const rows = leases.map((lease) => [
    // The former process of a name, or two that have it.
    `${printable(lease.name)}${isTwin(lease) ? ` (${lease.id.slice(0, 8)})` : ""}`,
    publishesText(lease, replicas),
    lastSeenText(lease, replicas),
    reliedOnText(lease, replicas),
  ]);
  const [heading = "", ...lines] = aligned([["REPLICA", "PUBLISHES", "LAST SEEN", "RELIED ON UNTIL"], ...rows]);
  const waits = waitsFound(found);
  const below = leases.map((lease) => {
    const { id, signsWith } = lease;
    const drains = drainingKids(lease, records, replicas);
    const signs = signsWith.map((kid) => {
      const until = drains.includes(kid) ? `, for ${drainSeconds} s at most` : "";
      return `  signs with ${kidText(kid)}${isReplaced(kid) ? `, which was replaced${until}` : ""}`;
    });
    const { signing } = replicaStatus(lease, replicas);
    if (signing !== "signs" && !isPermanent(lease)) signs.push(`  ${unsignedTexts[signing]}`);
    if (isTwin(lease) && lease === newest(lease.name)) signs.push("  the last seen of this name");
    const awaited = waits.filter(({ replicas }) => replicas.includes(id));
    return signs.concat(
      awaited.map(({ use, kid, action }) => {
        const goal = action === "activated" ? "becomes active" : "is removed";
        return `  ${use} ${kidText(kid)} waits for this replica, then ${goal}`;
      }),
    );
  });
  return [heading].concat(lines.flatMap((line, index) => [line].concat(below[index] ?? [])));
}

const waitsFound = ({ records, policy, replicas }: StoreContent): WaitStatus[] => waitsOf(records, policy, replicas);

/** Prints the steps whose wait has not begun, and the replicas for which they wait. */
export function printWaits(io: Io, found: StoreContent, columns: number): void {
  for (const { text } of waitsFound(found)) print(io, ["", ...indented(text, columns, 0)].join("\n"));
}

/** The same for `--json`. */
export function waitsJson(found: StoreContent) {
  return waitsFound(found).map(({ kid, use, action, since, replicas, text }) => ({
    kid,
    use,
    action,
    since: iso(since),
    replicas,
    text,
  }));
}

export function replicaJson(lease: Lease, at: ReplicasAt) {
  const status = replicaStatus(lease, at);
  return {
    ...status,
    lastSeenAt: iso(status.lastSeenAt),
    until: Number.isFinite(status.until) ? iso(status.until) : null,
  };
}
