import type { Committed, KeyEvent, KeyRecord, KeyStore } from "../../src/rotation/store/store.ts";

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
