import assert from "node:assert/strict";
import { type ErrorCode, JwksdError } from "../base/errors.ts";
import type { Committed, KeyEvent, KeyRecord, KeyStore, Lease, LeaseSeen } from "../rotation/store/store.ts";

/** Runs a test with a handle on an empty store; `another` opens more of them, as other processes would. */
export type StoreTest = (
  name: string,
  body: (store: KeyStore, another: () => Promise<KeyStore>) => Promise<void>,
) => void;

/** A tombstone as most records of an old store are, made from its kid. */
export const tombstone = (kid: string): KeyRecord => ({
  kid,
  use: "sig",
  alg: "ES256",
  state: "removed",
  announcedAt: 1_790_000_000_000,
  activatedAt: 1_790_000_086_400,
  retiredAt: 1_797_776_000_000,
  endedAt: 1_797_780_000_000,
  publicJwk: { kty: "EC", crv: "P-256", x: "x".repeat(43), y: "y".repeat(43) },
});

/** An event of the audit log. */
export const eventOf = (kid: string, reason = "planned"): KeyEvent => ({
  at: 1_790_000_000_000,
  type: "announced",
  kid,
  use: "sig",
  reason,
});

/** What the newest commit has left, without what changes by itself. */
export async function committed(store: Pick<KeyStore, "load">): Promise<Committed> {
  const { now: _, leases: _leases, ended: _ended, ...rest } = await store.load();
  return rest;
}

/** A record with every member. */
export const whole: KeyRecord = {
  kid: "whole",
  use: "sig",
  alg: "ES256",
  state: "active",
  announcedAt: 1,
  activatedAt: 2,
  unannounced: true,
  publicJwk: { kty: "EC", crv: "P-256", x: "eA", y: "eQ" },
  privateHalf: { jwe: "e30..a.b.c" },
  successorLease: { by: "replica 1", until: 8.64e15 },
};

export const encryption: KeyRecord = {
  kid: "encryption",
  use: "enc",
  alg: "RSA-OAEP-256",
  state: "revoked",
  announcedAt: 0,
  endedAt: 3,
  publicJwk: { kty: "RSA", n: "AQAB", e: "AQAB" },
  privateHalf: { uri: "vault:transit/keys/a?version=1" },
};

// Case, normal forms, trailing spaces, surrogate pairs, and what other stores take for a pattern, an end or a quote.
export const hardKids = [
  "a",
  "A",
  "a ",
  " a",
  "é",
  "e\u0301",
  "ß",
  "ss",
  "🔑",
  "%",
  "_",
  "a\u0000b",
  "a\u0000c",
  // Not well-formed: no keyset takes them, but a store must not mix them up.
  "\ud800",
  "\ud801",
  "'",
  '"',
  "\\",
  "\n",
];

export const leasesOf = async (store: KeyStore): Promise<(LeaseSeen & Pick<Lease, "name">)[]> =>
  (await store.load()).leases.map(({ id, name, publishes, signsWith }) => ({ id, name, publishes, signsWith }));

export const longMs = 3_600_000;

/** Lets the time of a lease pass by the clock of the store. */
export async function runOut(store: KeyStore, id: string): Promise<void> {
  await store.renew({ id, publishes: 0, signsWith: [] }, 1);
  const { now } = await store.load();
  const deadlineMs = performance.now() + 10_000;
  while ((await store.load()).now <= now + 1) assert.ok(performance.now() < deadlineMs, "its clock stands still");
}

export async function refused(attempt: Promise<unknown>, code: ErrorCode, retryable: boolean): Promise<void> {
  await assert.rejects(attempt, (error) => {
    assert.ok(error instanceof JwksdError);
    assert.deepEqual([error.name, error.code, error.retryable], ["StoreError", code, retryable], error.message);
    return true;
  });
}
