import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import * as jose from "jose";
import { systemClock } from "../../src/base/clock.ts";
import { type Custody, createCustody } from "../../src/rotation/custody/custody.ts";
import { type StoreDocument, emptyDocument, parseDocument } from "../../src/rotation/custody/document.ts";
import { type Owner, commandedBy } from "../../src/rotation/custody/issuer-check.ts";
import {
  type Wrapping,
  createWrapping as wrappingUnder,
  readWrappingKeys,
} from "../../src/rotation/custody/key-wrapping.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import { type ServiceManager, createKeyManager } from "../../src/rotation/manager/manager.ts";
import { makeLocalKey } from "../../src/rotation/manager/private-keys.ts";
import { type StoreAccess, createStoreAccess } from "../../src/rotation/manager/store-access.ts";
import type { KeyManagerOptions } from "../../src/rotation/manager/types.ts";
import type { KeyChange } from "../../src/rotation/rules/advance.ts";
import { type Command, type NewKey, applyCommand } from "../../src/rotation/rules/commands.ts";
import { type KeyRecord, type KeyUse, jweOf, liveRecords } from "../../src/rotation/rules/key-records.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";

/** Reads the document of a store in a file without a wrapping key. */
export async function readStore(path: string): Promise<StoreDocument> {
  const store = sqliteStore(path);
  try {
    return await documentOf(store);
  } finally {
    await store.close?.();
  }
}

export async function documentOf(store: Register): Promise<StoreDocument> {
  const { text } = await store.read();
  const owner: Owner = { issuer: noIssuer, isChosen: false };
  return text === undefined ? emptyDocument(owner, rotationPolicy()) : parseDocument(unsealed(text));
}

export { newWrappingKey } from "../../src/rotation/custody/key-wrapping.ts";

/** Returns the wrapping of a store's private keys. */
export const createWrapping = async (wrappingKeys: string | readonly string[], issuer: string): Promise<Wrapping> =>
  wrappingUnder(await readWrappingKeys(wrappingKeys), issuer);

/** Creates the custody of an issuer's keys in a store. */
export async function custodyOf(
  register: Register,
  wrappingKeys: readonly string[],
  owner: Owner = { issuer: noIssuer, isChosen: false },
): Promise<Custody> {
  const keys = await readWrappingKeys(wrappingKeys);
  return createCustody({ register, keys, issuerCheck: commandedBy(owner) });
}

/** Reads the wrapping key that jwksd generated in its data folder. */
export const wrappingKeyOf = async (data: string): Promise<string> =>
  (await readFile(join(data, "wrapping.key"), "utf8")).trim();

/** Unwraps the private JWKs of records with jose alone. */
export async function unwrapAll(records: readonly KeyRecord[], wrappingKey: string): Promise<jose.JWK[]> {
  const wrapped = liveRecords(records).flatMap((record) => jweOf(record) ?? []);
  return Promise.all(
    wrapped.map(async (jwe) => {
      const { plaintext } = await jose.compactDecrypt(jwe, jose.base64url.decode(wrappingKey));
      return JSON.parse(new TextDecoder().decode(plaintext)) as jose.JWK;
    }),
  );
}

/** Opens a store as a command does in a separate process. */
export const accessTo = (custody: Custody): StoreAccess =>
  createStoreAccess(custody, { policy: rotationPolicy(), clock: systemClock, signal: new AbortController().signal });

/** Commits a command, as `jwksd keys` does in a separate process. @returns the time of the commit, by `performance.now()` */
export async function commandStore(path: string, command: Command): Promise<{ change: KeyChange; doneMs: number }> {
  const wrappingKey = await wrappingKeyOf(dirname(path));
  const store = sqliteStore(path);
  const custody = await custodyOf(store, [wrappingKey]);
  const access = accessTo(custody);
  try {
    const change = await access.change(async ({ document: { records, policy }, now }) =>
      applyCommand(records, command, { policy, now }),
    );
    return { change, doneMs: performance.now() };
  } finally {
    await store.close?.();
  }
}

/** Issuer binding for keys if no issuer is set. */
export const noIssuer = "http://localhost";

/** Generates a key for a command, wrapped for the data folder's store. */
export async function keyFor(wrappingKey: string, issuer = noIssuer, use: KeyUse = "sig"): Promise<NewKey> {
  return makeLocalKey(use, use === "sig" ? "ES256" : "ECDH-ES", await createWrapping([wrappingKey], issuer));
}

/** Creates a manager with the service's commands, for tests that need a key before it is announced. */
export const createServiceManager = createKeyManager as (options: KeyManagerOptions) => Promise<ServiceManager>;
