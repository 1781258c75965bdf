import { Connections } from "./driver.ts";
import { postgresError } from "./errors.ts";
import { type Pools, hasNoTls } from "./pool.ts";

export const defaultTimeoutMs = 5_000;

/** Connects, and does what has to be done first. */
export async function connect(
  [pool, ...others]: Pools,
  timeoutMs: number,
  first: (connections: Connections) => Promise<void>,
): Promise<Connections> {
  const connections = new Connections(pool, timeoutMs);
  try {
    await first(connections);
    return connections;
  } catch (error) {
    await connections.close();
    const [next, ...rest] = others;
    if (next !== undefined && hasNoTls(error)) return connect([next, ...rest], timeoutMs, first);
    throw postgresError(error, pool.name);
  }
}
