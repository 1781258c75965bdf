import type { NewKey } from "../../src/rotation/rules/commands.ts";
import type { KeyRecord, KeyUse, LiveRecord, Tombstone } from "../../src/rotation/rules/key-records.ts";

export const second = 1_000;
export const minute = 60 * second;
export const hour = 60 * minute;
export const day = 24 * hour;
export const year = 365 * day;

/** Start time of all tables. */
export const start = Date.parse("2026-11-20T12:00:00Z");

/** Creates a key without a record. Its coordinates are not a point on the curve, which no tested code checks. */
export function newKey(kid: string, use: KeyUse = "sig"): NewKey {
  return {
    kid,
    use,
    alg: use === "sig" ? "ES256" : "ECDH-ES",
    thumbprint: `thumbprint of ${kid}`,
    publicJwk: { kty: "EC", crv: "P-256", x: `x of ${kid}`, y: `y of ${kid}` },
    privateHalf: { jwe: `wrapped ${kid}` },
  };
}

/** Creates a record with the given times, whose waiting period began with its state. */
export function record(
  kid: string,
  state: LiveRecord["state"],
  times: Pick<LiveRecord, "announcedAt"> & Partial<LiveRecord>,
): LiveRecord {
  const wait = {
    ...(state === "announced" && { publishedAt: times.announcedAt }),
    ...(state === "retiring" && times.retiredAt !== undefined && { replacedAt: times.retiredAt }),
  };
  return frozen({ ...newKey(kid, times.use), state, ...wait, ...times });
}

/** Returns a record whose waiting period has not begun. */
export function waiting(record: LiveRecord): LiveRecord {
  const { publishedAt: _, replacedAt: _replaced, ...rest } = record;
  return frozen(rest);
}

export function tombstone(kid: string, state: Tombstone["state"], more: Partial<Tombstone> = {}): Tombstone {
  return frozen({ kid, use: "sig", state, thumbprint: `thumbprint of ${kid}`, endedAt: start - day, ...more });
}

/** Freezes a value deeply, so that any change throws. */
export function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(frozen);
  }
  return value;
}

/** Returns the kid and state of each record in a string. */
export const states = (records: readonly KeyRecord[]): string =>
  records.map(({ kid, state }) => `${kid} ${state}`).join(", ");
