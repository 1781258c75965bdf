import { connect, defaultTimeoutMs } from "./connect.ts";
import { poolsOf } from "./pool.ts";
import { rights, stepsFrom, versionOf } from "./schema.ts";

/** What is to be done to the schema of a database, in SQL, and the rights that a user needs who may not do that. */
export interface PendingMigration {
  /** Empty where the schema is the newest. */
  readonly steps: readonly string[];
  /** Whether there is no schema yet. */
  readonly isNew: boolean;
  /** Has `:user` for the user. */
  readonly rights: string;
}

/**
 * Says what `postgresStores` would do to the schema, and does nothing.
 *
 * @throws as `postgresStores` does
 */
export async function pendingMigration(url: string): Promise<PendingMigration> {
  let version: number | undefined;
  const pools = await poolsOf(url, 1, defaultTimeoutMs);
  const connections = await connect(pools, defaultTimeoutMs, async (connections) => {
    version = await versionOf((...args) => connections.query(...args), connections.name);
  });
  await connections.close();
  return { steps: stepsFrom(version), isNew: version === undefined, rights };
}
