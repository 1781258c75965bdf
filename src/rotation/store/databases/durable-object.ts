/**
 * A store in Durable Objects of Cloudflare.
 *
 * @module jwksd/store/durable-object
 */

import { JwksdError, StoreError } from "../../../base/errors.ts";
import { checkArgument, checkOptions, withMethods } from "../../../base/options.ts";
import { issuerKey } from "../issuer.ts";
import type { Reading, Register } from "../register.ts";
import { type Call, type DatabaseStoreOptions, callsTo, databaseRules, networkFault } from "./calls.ts";
import { type SqlDatabase, sqlRegister } from "./sql.ts";
import { sqliteFault, sqliteStatements } from "./sqlite-dialect.ts";

export type { DatabaseStoreOptions } from "./calls.ts";

/** The part of a binding of a class of Durable Objects that is used here. */
export interface DurableObjectNamespace {
  idFromName(name: string): object;
  get(id: never): { fetch(url: string, init: RequestInit): Promise<Response> };
}

/** The part of the state of a Durable Object that is used here. */
export interface DurableObjectState {
  readonly storage: {
    readonly sql: {
      exec(sql: string, ...values: (string | number | null)[]): { toArray(): unknown[]; readonly rowsWritten: number };
    };
    transactionSync<T>(action: () => T): T;
  };
}

/** What is asked of an object. */
type Asked = { readonly issuer: string } & (
  | { readonly read: { readonly known: string | undefined; readonly confirmed: boolean | undefined } }
  | {
      readonly write: {
        readonly text: string;
        readonly ifVersion: string | undefined;
        readonly due: number | undefined;
      };
    }
);

type Told = { readonly value: unknown } | { readonly code: "ERR_STORE_UNAVAILABLE"; readonly message: string };

const binding = {
  ...withMethods("idFromName", "get"),
  must: "env.NAME, where NAME is the binding of the class KeysObject in the Worker's configuration",
  types: [],
};

/** Objects limit the size of a row. @see https://developers.cloudflare.com/durable-objects/platform/limits/ */
const maxBytes = 1_900_000;

/**
 * The class of the objects that hold keys: export it from the Worker, and bind it with `new_sqlite_classes`. A class of your own may have one of
 * these, and give it requests.
 */
export class KeysObject {
  readonly #state: DurableObjectState;

  constructor(state: DurableObjectState) {
    this.#state = state;
  }

  async fetch(request: Request): Promise<Response> {
    const asked = (await request.json()) as Asked;
    const { storage } = this.#state;
    const database: SqlDatabase = {
      name: "in a Durable Object",
      statements: sqliteStatements,
      maxBytes,
      faultOf: sqliteFault,
      transact: async (statements) =>
        storage.transactionSync(() =>
          statements.map(([sql, ...values]) => {
            const cursor = storage.sql.exec(sql, ...values);
            return { rows: cursor.toArray() as Record<string, unknown>[], changes: cursor.rowsWritten };
          }),
        ),
    };
    const register = sqlRegister(database, { issuer: asked.issuer });
    const call =
      "read" in asked
        ? register.read(asked.read.known, { confirmed: asked.read.confirmed })
        : register.write(asked.write.text, asked.write.ifVersion, { due: asked.write.due });
    const told: Told = await call.then(
      (value) => ({ value }),
      (error: unknown) => {
        if (!(error instanceof JwksdError)) throw error;
        return { code: "ERR_STORE_UNAVAILABLE", message: error.message };
      },
    );
    return Response.json(told);
  }
}

/**
 * The store of one issuer in a Durable Object of its own.
 *
 * @param namespace binding of {@link KeysObject}, such as `env.KEYS`
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function durableObjectStore(namespace: DurableObjectNamespace, options: DatabaseStoreOptions): Register {
  checkArgument("the namespace", namespace, binding);
  const { issuer, timeoutMs = 5_000 } = checkOptions(options, databaseRules);
  const name = "in a Durable Object";
  const calls = callsTo(name, timeoutMs, networkFault);

  const ask = (asked: Asked, options: Call): Promise<unknown> =>
    calls.run(async (signal) => {
      const object = namespace.get(namespace.idFromName(await issuerKey(issuer)) as never);
      const response = await object.fetch("https://jwksd/", { method: "POST", body: JSON.stringify(asked), signal });
      if (!response.ok) throw new Error(`the object answers ${response.status}`);
      const told = (await response.json()) as Told;
      if ("code" in told) throw new StoreError(told.code, told.message);
      return told.value;
    }, options);

  return {
    name,
    maxBytes,
    async read(known, { signal, confirmed } = {}) {
      return (await ask({ issuer, read: { known, confirmed } }, { signal, writes: false })) as Reading;
    },
    async write(text, ifVersion, { signal, due } = {}) {
      return (await ask({ issuer, write: { text, ifVersion, due } }, { signal, writes: true })) as boolean;
    },
  };
}
