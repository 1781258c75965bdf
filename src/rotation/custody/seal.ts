import type { CryptoKey, JWTPayload } from "jose";
import { FlattenedSign } from "jose/jws/flattened/sign";
import { flattenedVerify } from "jose/jws/flattened/verify";
import { decodeJwt } from "jose/jwt/decode";
import { jwtVerify } from "jose/jwt/verify";
import { StoreError } from "../../base/errors.ts";
import { canonicalJson } from "../../base/json.ts";
import type { Committed, KeyRecord } from "../store/store.ts";
import { textHash } from "../../keys/crypto/text-hash.ts";
import type { Owner } from "./issuer-check.ts";
import { type WrappingKey, type WrappingKeys, headerOf, missing } from "./wrapping.ts";

const typ = "jwksd-seal";
const earlierTyp = "jwksd-seal+jwt";

/**
 * Authenticates the records of a store, all together and in their order, the revision that holds them, and whose they are: a JWS (`HS256`)
 * with detached payload, under a key that is derived from the wrapping key. The payload is the revision and the records in one text. So no
 * record can be changed, put in, taken out or put back alone.
 *
 * @see RFC 7515 appendix F; RFC 7797; RFC 5869
 */
export async function makeSeal(
  { id, sealKey }: WrappingKey,
  { issuer, isChosen }: Owner,
  revision: number,
  records: readonly KeyRecord[],
): Promise<string> {
  const { protected: header, signature } = await new FlattenedSign(payloadOf({ revision, records }))
    .setProtectedHeader({ alg: "HS256", typ, kid: id, iss: issuer, chosen: isChosen, b64: false, crit: ["b64"] })
    .sign(sealKey);
  return `${header}..${signature}`;
}

/**
 * Verifies the seal of a store, and gives whose keys it holds and under which wrapping key it was sealed.
 *
 * @throws StoreError `ERR_STORE_NOT_AUTHENTIC`, `ERR_WRAPPING_KEY_MISSING`
 */
export async function openSeal(
  keys: WrappingKeys,
  committed: Committed,
): Promise<{ readonly owner: Owner; readonly verifiedBy: string }> {
  const header = headerOf(committed.seal ?? "");
  if (typeof header?.kid !== "string") throw notAuthentic("its seal is damaged");
  const key = keys.find(({ id }) => id === header.kid);
  if (key === undefined) throw missing("the records of the store are sealed", header.kid);
  const verify = header.typ === earlierTyp ? verifyEarlier : verifySeal;
  const owner = await verify(committed, key.sealKey).catch(() => undefined);
  if (owner === undefined) {
    throw notAuthentic("its seal was not made under the wrapping key for these records at this revision");
  }
  return { owner, verifiedBy: key.id };
}

/** Whose keys a seal says that the store holds; not verified. */
export function claimedOwner({ seal = "" }: Committed): Owner | undefined {
  try {
    const header = headerOf(seal);
    return ownerIn(header?.typ === earlierTyp ? decodeJwt(seal) : (header ?? {}));
  } catch {
    return undefined;
  }
}

/** @throws where it is not authentic */
async function verifySeal({ revision, records, seal = "" }: Committed, key: CryptoKey): Promise<Owner | undefined> {
  const [header = "", , signature = ""] = seal.split(".");
  const jws = { protected: header, payload: payloadOf({ revision, records }), signature };
  const { protectedHeader = {} } = await flattenedVerify(jws, key, { algorithms: ["HS256"] });
  // The key makes MACs of other types as well. @see RFC 8725 section 3.11
  return protectedHeader.typ === typ ? ownerIn(protectedHeader) : undefined;
}

/**
 * The same for a seal of an earlier jwksd: a JWT that bears the digest of the digests of blocks of 32 records. The next commit of the store
 * replaces it.
 */
async function verifyEarlier({ revision, records, seal = "" }: Committed, key: CryptoKey): Promise<Owner | undefined> {
  const { payload } = await jwtVerify(seal, key, { algorithms: ["HS256"], typ: earlierTyp });
  const digests: string[] = [];
  for (let start = 0; start < records.length; start += 32) {
    digests.push(await textHash(canonicalJson(records.slice(start, start + 32))));
  }
  const isSame = payload["revision"] === revision && payload["records"] === (await textHash(digests.join()));
  return isSame ? ownerIn(payload) : undefined;
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
