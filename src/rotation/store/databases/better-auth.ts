/**
 * A store in the database of better-auth.
 *
 * @module jwksd/store/better-auth
 */

import { pauseAfter } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { checkArgument, checkOptions, withMethods } from "../../../base/options.ts";
import { issuerKey } from "../issuer.ts";
import type { OpenRegister } from "../register.ts";
import { type DatabaseStoreOptions, type Fault, callsTo, databaseRules } from "./calls.ts";

export type { DatabaseStoreOptions } from "./calls.ts";

/** The part of a database adapter of better-auth that is used here. */
export interface AuthAdapter {
  create(asked: { model: string; data: Record<string, string> }): Promise<unknown>;
  findMany(asked: {
    model: string;
    where: { field: string; value: string }[];
    select: string[];
    limit: number;
  }): Promise<{ readonly version?: string; readonly text?: string; readonly word?: string }[]>;
  updateMany(asked: {
    model: string;
    where: { field: string; value: string }[];
    update: Record<string, string>;
  }): Promise<unknown>;
}

const model = "jwksd";

/** A plugin of better-auth that adds the table `jwksd` to its schema, for {@link betterAuthStore}. */
export const storePlugin = {
  id: "jwksd",
  schema: {
    [model]: {
      fields: {
        issuer: { type: "string", required: true, unique: true },
        version: { type: "string", required: true },
        text: { type: "string", required: true },
        word: { type: "string", required: true },
      },
    },
  },
} as const;

const adapterRule = {
  ...withMethods("create", "findMany", "updateMany"),
  must: "an adapter of better-auth, such as await getAdapter(options)",
  types: [],
};

const maxReads = 12;
const maxPauseMs = 500;

/**
 * The store of one issuer in the database of better-auth, which any number of processes and issuers may share. It has no clock of its own.
 *
 * @param adapter for example `await getAdapter(options)` of `better-auth/db/adapter`, where `options` has the database and {@link storePlugin}; not
 *   that of a transaction
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function betterAuthStore(adapter: AuthAdapter, options: DatabaseStoreOptions): OpenRegister {
  checkArgument("the adapter", adapter, adapterRule);
  const { issuer, timeoutMs = 5_000 } = checkOptions(options, databaseRules);
  const name = "in better-auth";
  const calls = callsTo(name, timeoutMs, faultOf);
  const where = async () => [{ field: "issuer", value: await issuerKey(issuer) }];

  async function find(select: ("version" | "text" | "word")[]) {
    const [row, other] = await adapter.findMany({ model, where: await where(), select, limit: 2 });
    if (other !== undefined) throw new Error("two rows have one issuer; the column needs a unique index");
    return row;
  }

  /** Another process may write its own word in between. */
  async function confirm(signal: AbortSignal): Promise<void> {
    for (let count = 0; count < maxReads; count += 1) {
      signal.throwIfAborted();
      const word = crypto.randomUUID();
      await adapter.updateMany({ model, where: await where(), update: { word } });
      const row = await find(["word"]);
      if (row === undefined || row.word === word) return;
      await pauseAfter(count, maxPauseMs, systemClock, signal);
    }
    throw new Error("it does not give back what was written: others write all the time, or this is not the primary");
  }

  return {
    name,
    // Of `text` in MySQL.
    maxBytes: 65_535,

    read: (known, { signal, confirmed = false } = {}) =>
      calls.run(
        async (ended) => {
          if (confirmed) await confirm(ended);
          const version = (await find(["version"]))?.version;
          if (version === undefined) return {};
          // Most reads find what is known, and the text is long.
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
              ? adapter.create({ model, data: { issuer: await issuerKey(issuer), version, text, word: "" } })
              : adapter.updateMany({
                  model,
                  where: [...(await where()), { field: "version", value: ifVersion }],
                  update: { version, text },
                });
          // The count of an adapter may be wrong, and each database says in its own words that a row is there.
          const error = await written.then(
            () => new Error("it does not give back what was written; name the primary"),
            (error: unknown) => error,
          );
          const found = await find(["version"]);
          if (found?.version === version) return true;
          // A version never comes again, so the condition cannot be met any more.
          if (found?.version !== ifVersion) return false;
          throw error;
        },
        { signal, writes: true },
      ),

    close: async () => calls.close(),
  };
}

/** The last line: Prisma shows before it what it was asked, and Drizzle has what the database says as the cause. */
function faultOf(error: unknown): Fault {
  const { code, message } = ((error as Error).cause ?? error) as Error & { readonly code?: unknown };
  return {
    word: typeof code === "string" ? code : "no code",
    text: message.trim().split("\n").at(-1),
    isCertain: false,
  };
}
