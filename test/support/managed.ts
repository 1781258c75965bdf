import { readFile } from "node:fs/promises";
import { join } from "node:path";
import * as jose from "jose";
import { systemClock } from "../../src/clock.ts";
import type { Change } from "../../src/rotation/advance.ts";
import { type Command, type NewKey, applyCommand } from "../../src/rotation/commands.ts";
import { makeLocalKey } from "../../src/rotation/make-key.ts";
import { rotationPolicy } from "../../src/rotation/policy.ts";
import { transact } from "../../src/rotation/transact.ts";
import { createWrapping } from "../../src/rotation/wrapping.ts";
import type { KeyRecord, KeyUse, StoredEvent } from "../../src/store/store.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";

/** What a store holds. */
export interface Stored {
  readonly revision: number;
  readonly records: readonly KeyRecord[];
  /** Oldest first. */
  readonly events: readonly StoredEvent[];
}

/** Reads a store, as another process would. */
export async function readStore(path: string): Promise<Stored> {
  const store = await sqliteStore(path);
  try {
    return { ...(await store.load()), events: (await store.events()).toReversed() };
  } finally {
    await store.close();
  }
}

export { newWrappingKey } from "../../src/rotation/wrapping.ts";

/** The wrapping key that a first start made in its data folder. */
export const wrappingKeyOf = async (data: string): Promise<string> =>
  (await readFile(join(data, "wrapping.key"), "utf8")).trim();

/** The private JWKs of records, unwrapped by jose alone. */
export async function unwrapAll(records: readonly KeyRecord[], wrappingKey: string): Promise<jose.JWK[]> {
  const wrapped = records.flatMap(({ privateHalf }) =>
    privateHalf !== undefined && "jwe" in privateHalf ? [privateHalf.jwe] : [],
  );
  return Promise.all(
    wrapped.map(async (jwe) => {
      const { plaintext } = await jose.compactDecrypt(jwe, jose.base64url.decode(wrappingKey));
      return JSON.parse(new TextDecoder().decode(plaintext)) as jose.JWK;
    }),
  );
}

/** Commits a command, as `jwksd keys` does in its own process, and gives when that was done, by `performance.now()`. */
export async function commandStore(path: string, command: Command): Promise<{ change: Change; doneMs: number }> {
  const store = await sqliteStore(path);
  try {
    const decide = (records: readonly KeyRecord[]): Change =>
      applyCommand(records, command, rotationPolicy(), Date.now());
    const change = await transact(store, decide, { clock: systemClock });
    return { change, doneMs: performance.now() };
  } finally {
    await store.close();
  }
}

/** To which keys are bound where no issuer is set. */
export const noIssuer = "http://localhost";

/** A key for a command, wrapped as the data folder's service wraps its own. */
export async function keyFor(wrappingKey: string, issuer = noIssuer, use: KeyUse = "sig"): Promise<NewKey> {
  return makeLocalKey(use, use === "sig" ? "ES256" : "ECDH-ES", await createWrapping([wrappingKey], issuer));
}
