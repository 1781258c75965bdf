import { Command } from "commander";
import { ConfigError, StateError } from "../../base/errors.ts";
import { printable } from "../../base/printable.ts";
import { lastSeenText } from "../../service/admin/replicas.ts";
import { isPermanent } from "../../rotation/rules/permanent-lease.ts";
import type { KeyStore } from "../../rotation/store/store.ts";
import { type Io, print } from "../io.ts";
import { type Flags, addLookSettings, withStore } from "./open-keys.ts";

export function endCopyCommand(io: Io): Command {
  const command = new Command("end")
    .description("Stop waiting for a copy that jwksd publish wrote, because nobody reads it any more.")
    .argument("<name>", "jwksd replicas lists them")
    .option("--yes", "confirm that nobody reads the copy");
  return addLookSettings(command)
    .addHelpText(
      "after",
      `
While the lease of a copy stands, no key becomes active that the copy lacks.
Afterwards, anybody who still reads the copy refuses the tokens of the next key.
So remove the copy first, wait until caches have forgotten it (7,200 s), and
then end its lease. A jwksd publish that runs makes a new one.

Examples:
  $ jwksd replicas
  $ jwksd replicas end s3://example-issuer/cluster-1 --yes`,
    )
    .action((name: string, flags: Flags) => withStore(io, flags, (store) => endCopy(io, store, name, flags)));
}

/**
 * @throws StateError `ERR_TRANSITION`: there is no such copy
 * @throws ConfigError `ERR_CONFIRMATION`
 */
async function endCopy(io: Io, store: KeyStore, name: string, { yes }: Flags): Promise<void> {
  const { leases, revision, now } = await store.load();
  const lease = leases.find((lease) => lease.name === name || lease.id === name);
  if (lease === undefined)
    throw new StateError("ERR_TRANSITION", `there is no replica of this name; jwksd replicas lists them`);
  if (!isPermanent(lease)) {
    throw new StateError(
      "ERR_TRANSITION",
      "this is a process and no copy: it gives up its lease when it is stopped, and the lease of a dead one runs out by itself, so there is nothing to do",
    );
  }
  const heard = `last written or confirmed ${lastSeenText(lease, { leases, revision, now })}`;
  if (yes !== true) {
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was changed; if nobody reads ${printable(name)} any more (${heard}), --yes ends its lease`,
    );
  }
  await store.leave(lease.id);
  print(io, `Nothing waits for ${printable(name)} any more (${heard}).`);
}
