import { callsTo } from "../../rotation/store/databases/database-calls.ts";
import { connectionTo, faultOf } from "../../rotation/store/databases/redis-connection.ts";
import type { SetIfAbsent } from "../../verify/bearer/index.ts";

/** Timeout for a call, in milliseconds. The proxy may have to wait that long for the guard's response. */
const timeoutMs = 2_000;

/** A record of used proofs that several guards share. */
export interface ReplayStore {
  readonly replay: SetIfAbsent;
  readonly close: () => void;
}

/**
 * Creates a record of used proofs in Redis or Valkey.
 *
 * @param url see `redisStore`
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function redisReplayStore(url: string): ReplayStore {
  const { name, send, end } = connectionTo(url, timeoutMs);
  const calls = callsTo(name, timeoutMs, faultOf);
  return {
    async replay(key, expiresAt) {
      const command = ["SET", `jwksd:used:${key}`, "", "NX", "PXAT", `${expiresAt}`];
      return (await calls.run((signal) => send(command, signal), { writes: true })) === "OK";
    },
    close() {
      calls.close();
      end();
    },
  };
}
