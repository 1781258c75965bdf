import type { CryptoKey, JWTPayload } from "jose";
import { FlattenedSign } from "jose/jws/flattened/sign";
import { flattenedVerify } from "jose/jws/flattened/verify";
import { StoreError } from "../../base/errors.ts";
import { canonicalJson } from "../../base/json.ts";
import type { Committed, KeyRecord } from "../store/store.ts";
import type { Owner } from "./issuer-check.ts";
import { type WrappingKey, type WrappingKeys, headerOf, missing } from "./wrapping.ts";

const typ = "jwksd-store";

/**
 * Authenticates the records of a store, all together and in their order, the revision that holds them, and whose they are: a JWS (`HS256`)
 * with detached payload, under a key that is derived from the wrapping key. The payload is the revision and the records in one text. So no
 * record can be changed, put in, taken out or put back alone.
 *
 * @see RFC 7515 appendix F; RFC 7797; RFC 5869
 */
export async function makeMac(
  { id, macKey }: WrappingKey,
  { issuer, isChosen }: Owner,
  revision: number,
  records: readonly KeyRecord[],
): Promise<string> {
  const { protected: header, signature } = await new FlattenedSign(payloadOf({ revision, records }))
    .setProtectedHeader({ alg: "HS256", typ, kid: id, iss: issuer, chosen: isChosen, b64: false, crit: ["b64"] })
    .sign(macKey);
  return `${header}..${signature}`;
}

/**
 * Verifies the MAC of a store, and gives whose keys it holds and under which wrapping key the MAC was made.
 *
 * @throws StoreError `ERR_STORE_NOT_AUTHENTIC`, `ERR_WRAPPING_KEY_MISSING`
 */
export async function verifyMac(
  keys: WrappingKeys,
  committed: Committed,
): Promise<{ readonly owner: Owner; readonly verifiedBy: string }> {
  const header = headerOf(committed.mac ?? "");
  if (typeof header?.kid !== "string") throw notAuthentic("its MAC is damaged");
  const key = keys.find(({ id }) => id === header.kid);
  if (key === undefined) throw missing("the MAC of the store was made", header.kid);
  const owner = await authenticOwner(committed, key.macKey).catch(() => undefined);
  if (owner === undefined) {
    throw notAuthentic("its MAC was not made under the wrapping key for these records at this revision");
  }
  return { owner, verifiedBy: key.id };
}

/** Whose keys a MAC says that the store holds; not verified. */
export function claimedOwner({ mac = "" }: Committed): Owner | undefined {
  return ownerIn(headerOf(mac) ?? {});
}

/** @throws where it is not authentic */
async function authenticOwner({ revision, records, mac = "" }: Committed, key: CryptoKey): Promise<Owner | undefined> {
  const [header = "", , signature = ""] = mac.split(".");
  const jws = { protected: header, payload: payloadOf({ revision, records }), signature };
  const { protectedHeader = {} } = await flattenedVerify(jws, key, { algorithms: ["HS256"] });
  // The key makes MACs of other types as well. @see RFC 8725 section 3.11
  return protectedHeader.typ === typ ? ownerIn(protectedHeader) : undefined;
}

const payloadOf = (payload: Pick<Committed, "revision" | "records">): Uint8Array =>
  new TextEncoder().encode(canonicalJson(payload));

function ownerIn({ iss, chosen }: JWTPayload): Owner | undefined {
  return typeof iss === "string" && typeof chosen === "boolean" ? { issuer: iss, isChosen: chosen } : undefined;
}

export function notAuthentic(what: string): StoreError {
  return new StoreError(
    "ERR_STORE_NOT_AUTHENTIC",
    `the records of the store are not used: ${what}; it is damaged, or somebody has changed it who has no wrapping key; put the newest good copy in its place, or see "A store that is not authentic" in docs/operations.md`,
  );
}
