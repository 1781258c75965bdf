/**
 * A store in Redis or Valkey.
 *
 * @module jwksd/store/redis
 */

import { checkArgument, checkOptions } from "../../../base/options.ts";
import { urlOr } from "../database-url.ts";
import { issuerKey } from "../issuer-hash.ts";
import type { ClosableRegister } from "../register.ts";
import { maxBytesOf } from "../size-limits.ts";
import { type Call, type StoreOptions, callsTo, databaseRules } from "./database-calls.ts";
import { type IoredisClient, type RedisClient, connectionTo, faultOf } from "./redis-connection.ts";

export type { StoreOptions } from "./database-calls.ts";

// The document is a single hash, so that its fields are written together. The braces keep an issuer's keys on one
// cluster node.
const keys = (key: string): string[] => [`jwksd:{${key}}`, `jwksd:{${key}}:presence`, `jwksd:{${key}}:confirmation`];

/**
 * Lua script that reads the document. If there is a second argument, the script writes before it reads; the write fails
 * on a primary that does not have its required replicas.
 */
const readScript = `if ARGV[2] ~= '' then redis.call('SET', KEYS[3], ARGV[2]) end
local time = redis.call('TIME')
local version = redis.call('HGET', KEYS[1], 'version')
if not version then return { time[1], time[2] } end
if #version > ${maxBytesOf.version} then version = '' end
if version == ARGV[1] then return { time[1], time[2], version } end
local text = redis.call('HGET', KEYS[1], 'text')
return { time[1], time[2], version, text and #text <= ${maxBytesOf.document} and text or nil }`;
const writeScript = `if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'text', ARGV[3], 'due', ARGV[4])
return 1`;
// These are scripts, because a script's response does not depend on the client's protocol version.
const putScript = "redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])";
const listScript = `local found, cursor, most = {}, '0', 2 * tonumber(ARGV[1])
repeat
  local page = redis.call('HSCAN', KEYS[2], cursor)
  cursor = page[1]
  for at = 1, #page[2], 2 do
    local id, record = page[2][at], page[2][at + 1]
    if #id <= ${maxBytesOf.id} and #found < most then
      found[#found + 1] = id
      found[#found + 1] = #record <= ${maxBytesOf.record} and record or ''
    end
  end
until cursor == '0' or #found >= most
return { redis.call('HLEN', KEYS[2]), found }`;
const dropScript = "redis.call('HDEL', KEYS[2], unpack(ARGV))";

/**
 * Creates the store for one issuer in Redis or Valkey, which any number of processes and issuers may share.
 *
 * @param database `redis://USER:PASSWORD@HOST:PORT/NUMBER` (requires the `redis` package, which parses the URL); or a
 * connected `redis` client, or an `ioredis` client, which the caller closes
 * @throws ConfigError `ERR_OPTION_INVALID`; `ERR_PACKAGE_MISSING` is thrown by the first call to the store
 */
export function redisStore(database: string | RedisClient | IoredisClient, options: StoreOptions): ClosableRegister {
  checkArgument("the database", database, urlOr("a redis or ioredis client", "sendCommand", "call"));
  const { issuer, timeoutMs = 5_000 } = checkOptions(options, databaseRules);
  const { name, send, end } = connectionTo(database, timeoutMs);
  const calls = callsTo(name, timeoutMs, faultOf);
  const run = (options: Call, script: string, ...values: string[]): Promise<unknown> =>
    calls.run(
      async (signal) => send(["EVAL", script, "3", ...keys(await issuerKey(issuer)), ...values], signal),
      options,
    );

  return {
    name,
    maxBytes: maxBytesOf.document,

    async read(known = "", { signal, confirmed = false } = {}) {
      const answer = await run({ signal, writes: false }, readScript, known, confirmed ? crypto.randomUUID() : "");
      const [seconds, microseconds, version, text] = (answer as unknown[]).map(String);
      return {
        ...(version !== undefined && { version }),
        ...(text !== undefined && { text }),
        now: Number(seconds) * 1_000 + Math.floor(Number(microseconds) / 1_000),
      };
    },

    async write(text, ifVersion = "", { signal, due = "" } = {}) {
      const values = [ifVersion, crypto.randomUUID(), text, `${due}`];
      // Some clients return numbers as strings.
      return String(await run({ signal, writes: true }, writeScript, ...values)) === "1";
    },

    presence: {
      async put(id, record, { signal } = {}) {
        await run({ signal, writes: true }, putScript, id, record);
      },
      async list(limit, { signal } = {}) {
        const answer = await run({ signal, writes: false }, listScript, `${limit}`);
        const [count, found] = answer as readonly [unknown, unknown[]];
        const pairs = found.map(String);
        const records = new Map(pairs.flatMap((id, at) => (at % 2 === 0 ? [[id, pairs[at + 1] ?? ""]] : [])));
        return { records, count: Number(count) };
      },
      async drop(ids, { signal } = {}) {
        await run({ signal, writes: true }, dropScript, ...ids);
      },
    },

    async close() {
      calls.close();
      end();
    },
  };
}
