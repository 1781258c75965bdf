import { type ServiceManager, createKeyManager } from "../../src/rotation/manager/manager.ts";
import type { KeyManagerOptions } from "../../src/rotation/manager/types.ts";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import * as jose from "jose";
import { systemClock } from "../../src/base/clock.ts";
import type { Change } from "../../src/rotation/rules/advance.ts";
import { type Command, type NewKey, applyCommand } from "../../src/rotation/rules/commands.ts";
import { makeLocalKey } from "../../src/rotation/manager/make-key.ts";
import { type Owner, commandedBy } from "../../src/rotation/custody/issuer-check.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { compareAndSet } from "../../src/rotation/manager/compare-and-set.ts";
import { type Custody, type CustodyOptions, createCustody } from "../../src/rotation/custody/custody.ts";
import {
  type Wrapping,
  createWrapping as wrappingUnder,
  readWrappingKeys,
} from "../../src/rotation/custody/wrapping.ts";
import type { Committed, KeyRecord, KeyStore, KeyUse, Snapshot, StoredEvent } from "../../src/rotation/store/store.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { committed } from "../../src/testing/records.ts";

/** What a store holds. */
export interface Stored extends Committed {
  /** Oldest first. */
  readonly events: readonly StoredEvent[];
}

/** Reads a store, as another process would. */
export async function readStore(path: string): Promise<Stored> {
  const store = await sqliteStore(path);
  try {
    return { ...(await committed(store)), events: (await store.events()).toReversed() };
  } finally {
    await store.close();
  }
}

export { newWrappingKey } from "../../src/rotation/custody/wrapping.ts";

/** What a store with these wrapping keys wraps its private keys with. */
export const createWrapping = async (wrappingKeys: string | readonly string[], issuer: string): Promise<Wrapping> =>
  wrappingUnder(await readWrappingKeys(wrappingKeys), issuer);

/** The keys of an issuer in a store, as any process has them that holds the wrapping keys. */
export async function custodyOf(
  store: KeyStore,
  wrappingKeys: readonly string[],
  owner: Owner = { issuer: noIssuer, isChosen: false },
  options: Pick<CustodyOptions, "movesToFirst"> = {},
): Promise<Custody> {
  const keys = await readWrappingKeys(wrappingKeys);
  return createCustody({ store, keys, issuerCheck: commandedBy(owner), ...options });
}

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
  const wrappingKey = await wrappingKeyOf(dirname(path));
  const { store } = await custodyOf(await sqliteStore(path), [wrappingKey]);
  try {
    const decide = ({ records, now }: Snapshot): Change => applyCommand(records, command, rotationPolicy(), now);
    const change = await compareAndSet(store, decide, { clock: systemClock });
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

/** A manager with the commands that the service gives, for tests that have a key before it is announced. */
export const createServiceManager = createKeyManager as (options: KeyManagerOptions) => Promise<ServiceManager>;
