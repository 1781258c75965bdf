import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import * as jose from "jose";
import { systemClock } from "../../src/base/clock.ts";
import { type Custody, type CustodyOptions, createCustody } from "../../src/rotation/custody/custody.ts";
import { type StoreDocument, emptyDocument, parseDocument } from "../../src/rotation/custody/document.ts";
import { type Owner, commandedBy } from "../../src/rotation/custody/issuer-check.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import {
  type Wrapping,
  createWrapping as wrappingUnder,
  readWrappingKeys,
} from "../../src/rotation/custody/wrapping.ts";
import { type ServiceManager, createKeyManager } from "../../src/rotation/manager/manager.ts";
import { makeLocalKey } from "../../src/rotation/manager/private-keys.ts";
import { type StoreAccess, createStoreAccess } from "../../src/rotation/manager/store-access.ts";
import type { KeyManagerOptions } from "../../src/rotation/manager/types.ts";
import type { Change } from "../../src/rotation/rules/advance.ts";
import { type Command, type NewKey, applyCommand } from "../../src/rotation/rules/commands.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { type KeyRecord, type KeyUse, jweOf, liveRecords } from "../../src/rotation/rules/records.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";

/** What a store in a file holds, as anybody reads it who has no wrapping key. */
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

export { newWrappingKey } from "../../src/rotation/custody/wrapping.ts";

/** What a store with these wrapping keys wraps its private keys with. */
export const createWrapping = async (wrappingKeys: string | readonly string[], issuer: string): Promise<Wrapping> =>
  wrappingUnder(await readWrappingKeys(wrappingKeys), issuer);

/** The keys of an issuer in a store, as any process has them that holds the wrapping keys. */
export async function custodyOf(
  register: Register,
  wrappingKeys: readonly string[],
  owner: Owner = { issuer: noIssuer, isChosen: false },
  options: Pick<CustodyOptions, "movesToFirst"> = {},
): Promise<Custody> {
  const keys = await readWrappingKeys(wrappingKeys);
  return createCustody({ register, keys, issuerCheck: commandedBy(owner), ...options });
}

/** The wrapping key that a first start made in its data folder. */
export const wrappingKeyOf = async (data: string): Promise<string> =>
  (await readFile(join(data, "wrapping.key"), "utf8")).trim();

/** The private JWKs of records, unwrapped by jose alone. */
export async function unwrapAll(records: readonly KeyRecord[], wrappingKey: string): Promise<jose.JWK[]> {
  const wrapped = liveRecords(records).flatMap((record) => jweOf(record) ?? []);
  return Promise.all(
    wrapped.map(async (jwe) => {
      const { plaintext } = await jose.compactDecrypt(jwe, jose.base64url.decode(wrappingKey));
      return JSON.parse(new TextDecoder().decode(plaintext)) as jose.JWK;
    }),
  );
}

/** How a command reads and writes a store, in a process of its own. */
export const accessTo = (custody: Custody): StoreAccess =>
  createStoreAccess(custody, { policy: rotationPolicy(), clock: systemClock, signal: new AbortController().signal });

/** Commits a command, as `jwksd keys` does in its own process, and gives when that was done, by `performance.now()`. */
export async function commandStore(path: string, command: Command): Promise<{ change: Change; doneMs: number }> {
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

/** To which keys are bound where no issuer is set. */
export const noIssuer = "http://localhost";

/** A key for a command, wrapped as the data folder's service wraps its own. */
export async function keyFor(wrappingKey: string, issuer = noIssuer, use: KeyUse = "sig"): Promise<NewKey> {
  return makeLocalKey(use, use === "sig" ? "ES256" : "ECDH-ES", await createWrapping([wrappingKey], issuer));
}

/** A manager with the commands that the service gives, for tests that have a key before it is announced. */
export const createServiceManager = createKeyManager as (options: KeyManagerOptions) => Promise<ServiceManager>;
