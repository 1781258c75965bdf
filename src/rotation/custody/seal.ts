import type { JWTPayload } from "jose";
import { SignJWT } from "jose/jwt/sign";
import { decodeJwt } from "jose/jwt/decode";
import { jwtVerify } from "jose/jwt/verify";
import { StoreError } from "../../base/errors.ts";
import { changedRecords } from "../store/changed-records.ts";
import type { Committed, KeyRecord } from "../store/store.ts";
import { textHash } from "../../keys/crypto/text-hash.ts";
import type { Owner } from "./owner.ts";
import { type WrappingKey, type WrappingKeys, headerOf, missing } from "./wrapping.ts";

const typ = "jwksd-seal+jwt";

/**
 * Authenticates the records of a store, all together and in their order, the revision that holds them, and whose they are: a JWT with
 * a MAC (`HS256`) under a key that is derived from the wrapping key. So no record can be changed, put in, taken out or put back alone.
 *
 * @see RFC 7519; RFC 5869
 */
export async function makeSeal(
  { id, sealKey }: WrappingKey,
  { issuer, isChosen }: Owner,
  revision: number,
  records: readonly KeyRecord[],
): Promise<string> {
  return new SignJWT({ iss: issuer, chosen: isChosen, revision, records: await digestOf(records) })
    .setProtectedHeader({ alg: "HS256", typ, kid: id })
    .sign(sealKey);
}

/**
 * Verifies the seal of a store, and gives whose keys it holds and under which wrapping key it was sealed.
 *
 * @throws StoreError `ERR_STORE_NOT_AUTHENTIC`, `ERR_WRAPPING_KEY_MISSING`
 */
export async function openSeal(
  keys: WrappingKeys,
  { revision, records, seal = "" }: Committed,
): Promise<{ readonly owner: Owner; readonly verifiedBy: string }> {
  const header = headerOf(seal);
  if (typeof header?.kid !== "string") throw notAuthentic("its seal is damaged");
  const key = keys.find(({ id }) => id === header.kid);
  if (key === undefined) throw missing("the records of the store are sealed", header.kid);
  const claims = await jwtVerify(seal, key.sealKey, { algorithms: ["HS256"], typ }).then(
    ({ payload }) => payload,
    () => {
      throw notAuthentic("its seal was not made under the wrapping key");
    },
  );
  if (claims["revision"] !== revision || claims["records"] !== (await digestOf(records))) {
    throw notAuthentic("its records, or its revision, are others than those that were sealed");
  }
  return { owner: ownerIn(claims) as Owner, verifiedBy: key.id };
}

/** Whose keys a seal says that the store holds; not verified. */
export function claimedOwner({ seal = "" }: Committed): Owner | undefined {
  try {
    return ownerIn(decodeJwt(seal));
  } catch {
    return undefined;
  }
}

function ownerIn({ iss, chosen }: JWTPayload): Owner | undefined {
  return typeof iss === "string" && typeof chosen === "boolean" ? { issuer: iss, isChosen: chosen } : undefined;
}

/** How many records are hashed together. */
const blockSize = 32;

/**
 * The digest of each block that cannot change any more, by its first record: nearly all blocks of an old store hold tombstones alone, and
 * are hashed once.
 */
const digests = new WeakMap<KeyRecord, { readonly block: readonly KeyRecord[]; readonly digest: string }>();

/** The digest of the digests of all blocks: records keep their places for good, and so do blocks. */
async function digestOf(records: readonly KeyRecord[]): Promise<string> {
  const blocks: string[] = [];
  for (let start = 0; start < records.length; start += blockSize) {
    const block = records.slice(start, start + blockSize);
    blocks.push(await digestOfBlock(block));
  }
  return textHash(blocks.join());
}

async function digestOfBlock(block: readonly KeyRecord[]): Promise<string> {
  const first = block[0] as KeyRecord;
  const known = digests.get(first);
  if (known?.block.length === block.length && changedRecords(block, known.block).length === 0) return known.digest;
  const isFixed = block.every(Object.isFrozen);
  const digest = await textHash(canonical(block));
  if (isFixed) digests.set(first, { block, digest });
  return digest;
}

/** One text for one value, whatever order a store gives members in. @see RFC 8785 */
export function canonical(value: unknown): string {
  // JSON text may hold numbers that are too large for one; they must not pass for null.
  if (typeof value === "number") return String(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  // By code unit, so that every machine agrees.
  members.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join(",")}}`;
}

export function notAuthentic(what: string): StoreError {
  return new StoreError(
    "ERR_STORE_NOT_AUTHENTIC",
    `the records of the store are not used: ${what}; it is damaged, or somebody has changed it who has no wrapping key; put the newest good copy in its place, or see "A store that is not authentic" in docs/operations.md`,
  );
}
