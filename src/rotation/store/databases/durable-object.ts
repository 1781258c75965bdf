/**
 * A store in Cloudflare Durable Objects.
 *
 * @module jwksd/store/durable-object
 */

import { JwksdError, StoreError } from "../../../base/errors.ts";
import { checkArgument, checkOptions, withMethods } from "../../../base/options.ts";
import { issuerKey } from "../issuer-hash.ts";
import type { ReadResult, Register } from "../register.ts";
import { type Call, type StoreOptions, callsTo, databaseRules, networkFault } from "./database-calls.ts";
import { type SqlDatabase, sqlRegister } from "./sql-register.ts";
import { sqliteFault, sqliteStatements } from "./sqlite-dialect.ts";

export type { StoreOptions } from "./database-calls.ts";

/** The part of a Durable Object namespace that jwksd uses. */
export interface DurableObjectNamespace {
  idFromName(name: string): object;
  get(id: never): { fetch(url: string, init: RequestInit): Promise<Response> };
}

/** The part of a Durable Object's state that jwksd uses. */
export interface DurableObjectState {
  readonly storage: {
    readonly sql: {
      exec(sql: string, ...values: (string | number | null)[]): { toArray(): unknown[]; readonly rowsWritten: number };
    };
    transactionSync<T>(action: () => T): T;
  };
}

/** A request to an object. */
type ObjectRequest = { readonly issuer: string } & (
  | { readonly read: { readonly known: string | undefined; readonly confirmed: boolean | undefined } }
  | {
      readonly write: {
        readonly text: string;
        readonly ifVersion: string | undefined;
        readonly due: number | undefined;
      };
    }
);

type ObjectResponse =
  | { readonly value: unknown }
  | { readonly code: "ERR_STORE_UNAVAILABLE"; readonly message: string };

const binding = {
  ...withMethods("idFromName", "get"),
  must: "env.NAME, where NAME is the binding of the KeysObject class in the Worker's configuration",
  types: [],
};

/**
 * Maximum size of a document, in bytes. The limit exists because Durable Objects limit the size of a row.
 *
 * @see https://developers.cloudflare.com/durable-objects/platform/limits/
 */
const maxBytes = 1_900_000;

/**
 * The class of the Durable Objects that store keys. Export it from the Worker and bind it with `new_sqlite_classes`.
 * Alternatively, have your own class hold an instance of this class and forward requests to that instance.
 */
export class KeysObject {
  readonly #state: DurableObjectState;

  constructor(state: DurableObjectState) {
    this.#state = state;
  }

  async fetch(request: Request): Promise<Response> {
    const body = (await request.json()) as ObjectRequest;
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
    const register = sqlRegister(database, { issuer: body.issuer });
    const call =
      "read" in body
        ? register.read(body.read.known, { confirmed: body.read.confirmed })
        : register.write(body.write.text, body.write.ifVersion, { due: body.write.due });
    const answer: ObjectResponse = await call.then(
      (value) => ({ value }),
      (error: unknown) => {
        if (!(error instanceof JwksdError)) throw error;
        return { code: "ERR_STORE_UNAVAILABLE", message: error.message };
      },
    );
    return Response.json(answer);
  }
}

/**
 * Creates the store for one issuer in its own Durable Object.
 *
 * @param namespace binding of {@link KeysObject}, such as `env.KEYS`
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function durableObjectStore(namespace: DurableObjectNamespace, options: StoreOptions): Register {
  checkArgument("the namespace", namespace, binding);
  const { issuer, timeoutMs = 5_000 } = checkOptions(options, databaseRules);
  const name = "in a Durable Object";
  const calls = callsTo(name, timeoutMs, networkFault);

  const send = (request: ObjectRequest, options: Call): Promise<unknown> =>
    calls.run(async (signal) => {
      const object = namespace.get(namespace.idFromName(await issuerKey(issuer)) as never);
      const response = await object.fetch("https://jwksd/", { method: "POST", body: JSON.stringify(request), signal });
      if (!response.ok) throw new Error(`the object returned ${response.status}`);
      const answer = (await response.json()) as ObjectResponse;
      if ("code" in answer) throw new StoreError(answer.code, answer.message);
      return answer.value;
    }, options);

  return {
    name,
    maxBytes,
    async read(known, { signal, confirmed } = {}) {
      return (await send({ issuer, read: { known, confirmed } }, { signal, writes: false })) as ReadResult;
    },
    async write(text, ifVersion, { signal, due } = {}) {
      return (await send({ issuer, write: { text, ifVersion, due } }, { signal, writes: true })) as boolean;
    },
  };
}
