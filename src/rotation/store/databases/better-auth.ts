/**
 * A store in better-auth's database.
 *
 * @module jwksd/store/better-auth
 */

import { pauseAfter } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { checkArgument, checkOptions, withMethods } from "../../../base/options.ts";
import { issuerKey } from "../issuer-hash.ts";
import type { ClosableRegister } from "../register.ts";
import { type StoreOptions, type Fault, callsTo, databaseRules } from "./database-calls.ts";

export type { StoreOptions } from "./database-calls.ts";

/** The part of a better-auth database adapter that jwksd uses. */
export interface BetterAuthAdapter {
  create(query: { model: string; data: Record<string, string> }): Promise<unknown>;
  findMany(query: {
    model: string;
    where: { field: string; value: string }[];
    select: string[];
    limit: number;
  }): Promise<{ readonly version?: string; readonly text?: string; readonly confirmation?: string }[]>;
  updateMany(query: {
    model: string;
    where: { field: string; value: string }[];
    update: Record<string, string>;
  }): Promise<unknown>;
}

const model = "jwksd";

/** A better-auth plugin that adds the `jwksd` table to the schema, for {@link betterAuthStore}. */
export const jwksdStorePlugin = {
  id: "jwksd",
  schema: {
    [model]: {
      fields: {
        issuer: { type: "string", required: true, unique: true },
        version: { type: "string", required: true },
        text: { type: "string", required: true },
        confirmation: { type: "string", required: true },
      },
    },
  },
} as const;

const adapterRule = {
  ...withMethods("create", "findMany", "updateMany"),
  must: "a better-auth adapter, such as await getAdapter(options)",
  types: [],
};

const maxReads = 12;
const maxPauseMs = 500;

/**
 * Creates the store for one issuer in better-auth's database, which any number of processes and issuers may share. The
 * store has no clock.
 *
 * @param adapter better-auth adapter, such as `await getAdapter(options)` from `better-auth/db/adapter`, where
 * `options` contains the database and {@link jwksdStorePlugin}; it must not be an adapter for a transaction
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function betterAuthStore(adapter: BetterAuthAdapter, options: StoreOptions): ClosableRegister {
  checkArgument("the adapter", adapter, adapterRule);
  const { issuer, timeoutMs = 5_000 } = checkOptions(options, databaseRules);
  const name = "in better-auth";
  const calls = callsTo(name, timeoutMs, faultOf);
  const where = async () => [{ field: "issuer", value: await issuerKey(issuer) }];

  async function find(select: ("version" | "text" | "confirmation")[]) {
    const [row, other] = await adapter.findMany({ model, where: await where(), select, limit: 2 });
    if (other !== undefined) throw new Error("two rows have the same issuer; add a unique index to the issuer column");
    if (row !== undefined && select.some((field) => typeof row[field] !== "string"))
      throw new Error(`a row does not have the fields ${select.join(" and ")}; correct the adapter's schema`);
    return row;
  }

  /** Checks that a read returns what was just written. Retries, because another process may write in between. */
  async function confirm(signal: AbortSignal): Promise<void> {
    for (let count = 0; count < maxReads; count += 1) {
      signal.throwIfAborted();
      const confirmation = crypto.randomUUID();
      await adapter.updateMany({ model, where: await where(), update: { confirmation } });
      const row = await find(["confirmation"]);
      if (row === undefined || row.confirmation === confirmation) return;
      await pauseAfter(count, maxPauseMs, systemClock, signal);
    }
    throw new Error(
      "a read did not return what was just written: either other processes are constantly writing, or this database is not the primary",
    );
  }

  return {
    name,
    // The limit for `text` columns in MySQL.
    maxBytes: 65_535,

    read: (known, { signal, confirmed = false } = {}) =>
      calls.run(
        async (ended) => {
          if (confirmed) await confirm(ended);
          const version = (await find(["version"]))?.version;
          if (version === undefined) return {};
          // Most reads find the known version, and the document is long.
          if (version === known) return { version };
          const found = await find(["version", "text"]);
          return { version: found?.version, text: found?.text };
        },
        { signal, writes: false },
      ),

    write: (text, ifVersion, { signal } = {}) =>
      calls.run(
        async () => {
          const version = crypto.randomUUID();
          const written =
            ifVersion === undefined
              ? adapter.create({ model, data: { issuer: await issuerKey(issuer), version, text, confirmation: "" } })
              : adapter.updateMany({
                  model,
                  where: [...(await where()), { field: "version", value: ifVersion }],
                  update: { version, text },
                });
          // An adapter's count may be wrong, and each database has its own error for an existing row, so the result is
          // read back.
          const error = await written.then(
            () => new Error("a read did not return what was just written; connect to the primary"),
            (error: unknown) => error,
          );
          const found = await find(["version"]);
          if (found?.version === version) return true;
          // Versions are never reused, so the condition can no longer be met.
          if (found?.version !== ifVersion) return false;
          throw error;
        },
        { signal, writes: true },
      ),

    close: async () => calls.close(),
  };
}

/**
 * Returns details about an adapter's error. Uses only the last line of the message, because Prisma puts the query on
 * the lines above it. With Drizzle, the database's error is the cause of the adapter's error.
 */
function faultOf(error: unknown): Fault {
  const { code, message } = ((error as Error).cause ?? error) as Error & { readonly code?: unknown };
  return {
    code: typeof code === "string" ? code : "no code",
    text: message.trim().split("\n").at(-1),
    isCertain: false,
  };
}
