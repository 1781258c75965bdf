import { Command } from "commander";
import {
  type ReplicasAt,
  heardAt,
  heardText,
  heldUpSteps,
  heldUpText,
  publishesText,
  reliedOnText,
} from "../../service/admin/replicas.ts";
import { aligned, indented, terminalOf } from "../../service/admin/terminal.ts";
import { printable } from "../../base/printable.ts";
import { kidText } from "../../rotation/rules/format.ts";
import { isStanding } from "../../rotation/rules/standing.ts";
import type { Lease } from "../../rotation/store/store.ts";
import { endCopyCommand } from "./end-copy.ts";
import { type Io, iso, print, printJson } from "../io.ts";
import { type Flags, type Found, addLookSettings, look } from "./open-keys.ts";

export function replicasCommand(io: Io): Command {
  const command = new Command("replicas");
  // It and its subcommand have the same flags.
  return addLookSettings(command.enablePositionalOptions().addCommand(endCopyCommand(io)))
    .addHelpText(
      "after",
      `
Each jwksd serve and each key manager is a replica with a lease in the store. A step waits until every replica has followed, or its
lease has ended. A process that ends in order ends its lease; one that dies holds up steps for one lease (--lease-seconds). A copy that
jwksd publish wrote is served without a process, so its lease stays until jwksd replicas end ends it.
The seal of the store is over its keys, not over its replicas.

Examples:
  $ jwksd replicas
  $ jwksd replicas --json | jq '.replicas[] | select(.revisionsBehind > 0) | .name'`,
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
      replicas: leases.map((lease) => {
        const held = heldUpBy(lease, found);
        return replicaJson(lease, replicas, {
          holdsUp: held.map(({ record: { kid, use }, action }) => ({ kid, use, action })),
        });
      }),
      waits: waitsJson(found),
    };
    return printJson(io, json);
  }
  const { columns } = terminalOf(io.stdout, io.environment);
  print(io, table(found).join("\n"));
  printWaits(io, found, columns);
}

function table(found: Found): string[] {
  const { replicas } = found;
  const { leases } = replicas;
  if (leases.length === 0) return ["No replica runs."];
  const rows = leases.map((lease) => [
    printable(lease.name),
    publishesText(lease, replicas),
    heardText(lease, replicas),
    reliedOnText(lease, replicas),
  ]);
  const [heading = "", ...lines] = aligned([["REPLICA", "PUBLISHES", "LAST HEARD OF", "RELIED ON UNTIL"], ...rows]);
  const below = leases.map((lease) => {
    const signs = lease.signsWith.map((kid) => `  signs with ${kidText(kid)}`);
    const held = heldUpBy(lease, found).map(
      ({ record: { use, kid }, action }) =>
        `  holds up that ${use} ${kidText(kid)} ${action === "activated" ? "becomes active" : "is removed"}`,
    );
    return signs.concat(held);
  });
  return [heading].concat(lines.flatMap((line, index) => [line].concat(below[index] ?? [])));
}

function heldUpBy({ id }: Lease, { records, policy, replicas }: Found) {
  return heldUpSteps(records, policy, replicas).filter(({ behind }) => behind.some((lease) => lease.id === id));
}

/** Prints what steps wait for whose wait has not begun. */
export function printWaits(io: Io, { records, policy, replicas }: Found, columns: number): void {
  for (const step of heldUpSteps(records, policy, replicas)) {
    print(io, ["", ...indented(heldUpText(step, replicas), columns, 0)].join("\n"));
  }
}

/** The same for `--json`. */
export function waitsJson({ records, policy, replicas }: Found) {
  return heldUpSteps(records, policy, replicas).map((step) => ({
    kid: step.record.kid,
    use: step.record.use,
    action: step.action,
    forSeconds: step.forMs / 1000,
    replicas: step.behind.map((lease) => replicaJson(lease, replicas)),
    reason: heldUpText(step, replicas),
  }));
}

export function replicaJson(lease: Lease, replicas: ReplicasAt, more: object = {}) {
  const { id, name, publishes, signsWith, until } = lease;
  return {
    id,
    name,
    publishes,
    revisionsBehind: Math.max(replicas.revision - publishes, 0),
    signsWith,
    heardAt: iso(heardAt(lease, replicas)),
    until: isStanding(lease) ? null : iso(until),
    ...more,
  };
}
