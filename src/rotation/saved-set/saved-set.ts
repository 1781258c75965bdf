import type { JWTPayload } from "jose";
import { decodeJwt } from "jose/jwt/decode";
import { SignJWT } from "jose/jwt/sign";
import { jwtVerify } from "jose/jwt/verify";
import { durationText } from "../../base/format.ts";
import { jsonOf } from "../../base/json.ts";
import type { PublishedJwk } from "../../keys/jwk/public-members.ts";
import { makeDocument } from "../../publish/document.ts";
import { type Keysets, publishedKeysets } from "../../publish/keyset-check.ts";
import { type Owner, servedBy } from "../custody/issuer-check.ts";
import type { WrappingKeys } from "../custody/key-wrapping.ts";
import { type RotationPolicy, cachedForSeconds, rotationPolicy } from "../rules/policy.ts";

const typ = "jwksd-saved-set+jwt";

/** Public keys from a store, to publish if a process starts while the store is unavailable. */
export interface SavedSet {
  readonly keysets: Keysets;
  /** Time at which the store was last known to contain these keys, in epoch milliseconds. */
  readonly at: number;
  /** The store's policy at that time. */
  readonly policy: RotationPolicy;
}

/** Thrown if a saved set cannot be used; the message gives the reason. */
export class Unusable extends Error {}

/**
 * Serializes a saved set: the public keys, and a MAC over the keys, their issuer, the time and the policy. The MAC is a
 * JWT (`HS256`), signed with a key that is derived from the first wrapping key. An attacker who can write to the saved
 * set but has no wrapping key therefore cannot get other keys published.
 */
export async function savedSetText(
  { keys, at, policy }: Pick<SavedSet, "at" | "policy"> & { readonly keys: readonly PublishedJwk[] },
  { issuer, isChosen }: Owner,
  [{ id, macKey }]: WrappingKeys,
): Promise<string> {
  const { etag: hash } = await makeDocument(keys);
  const mac = await new SignJWT({ iss: issuer, chosen: isChosen, at, policy, set: hash })
    .setProtectedHeader({ alg: "HS256", typ, kid: id })
    .sign(macKey);
  return `${JSON.stringify({ keys, mac }, undefined, 2)}\n`;
}

/** Conditions under which a saved set is used. */
export interface SavedSetRule {
  /** Expected owner of the keys. */
  readonly wanted: Owner;
  readonly wrappingKeys: WrappingKeys;
  readonly now: number;
  /** Maximum age, in seconds. Default: derived from the set's policy. */
  readonly maxAgeSeconds: number | undefined;
}

/**
 * Returns how old a saved set may be, in seconds. By default, a set is used until a key that it does not contain might
 * be used to sign. This does not take into account keys that an operator forces into use for signing. Keys that were
 * announced up to `maxStaleSeconds` before the set was saved may be missing from it, but they are not used to sign
 * until cached sets have expired.
 */
export function maxSavedSetSeconds(
  given: number | undefined,
  { announceForSeconds, maxStaleSeconds, clockSkewSeconds }: RotationPolicy,
): number {
  const byPolicy = announceForSeconds - maxStaleSeconds - cachedForSeconds.rotation - clockSkewSeconds;
  return given ?? Math.max(byPolicy, 0);
}

/** Reads a saved set. @throws Unusable if it is damaged, not authentic, for another issuer, or too old */
export async function readSavedSet(text: string, rule: SavedSetRule): Promise<SavedSet> {
  const { keys, mac } = parse(text);
  const claims = await verified(mac, rule.wrappingKeys);
  if (claims["set"] !== (await makeDocument(keys)).etag) throw new Unusable("its keys do not match its MAC");
  const at = claims["at"] as number;
  const owner = ownerIn(claims);
  if (!isOf(owner, rule.wanted)) throw new Unusable(`it belongs to issuer ${JSON.stringify(owner.issuer)}`);
  const policy = rotationPolicy(claims["policy"] as RotationPolicy);
  checkAge(at, policy, rule);
  return { keysets: publishedKeysets(keys as readonly PublishedJwk[]), at, policy };
}

/**
 * Reports whether a saved set shows that a store contained this issuer's keys. The MAC is not verified, because the
 * wrapping key may have been lost together with the store. The worst that an attacker can do with a forged saved set is
 * prevent keys from being generated in an empty store.
 */
export function showsKeysOf(text: string | undefined, wanted: Owner): boolean {
  if (text === undefined) return false;
  let found: Owner;
  try {
    found = ownerIn(decodeJwt(parse(text).mac));
  } catch {
    // The set is damaged, but there were keys.
    return true;
  }
  // A set that was saved during a trial, before an issuer was chosen, says nothing about the issuer that has been
  // chosen since.
  return found.isChosen === wanted.isChosen && isOf(found, wanted);
}

function parse(text: string): { readonly keys: readonly unknown[]; readonly mac: string } {
  const { keys, mac } = Object(jsonOf(text)) as { keys?: unknown; mac?: unknown };
  if (Array.isArray(keys) && typeof mac === "string") return { keys, mac };
  throw new Unusable("it is damaged");
}

async function verified(mac: string, keys: WrappingKeys): Promise<JWTPayload> {
  for (const { macKey } of keys) {
    try {
      return (await jwtVerify(mac, macKey, { algorithms: ["HS256"], typ })).payload;
    } catch {}
  }
  throw new Unusable("its MAC was not computed with any of the wrapping keys");
}

const ownerIn = ({ iss, chosen }: JWTPayload): Owner => ({ issuer: iss ?? "", isChosen: chosen === true });

function isOf(found: Owner, wanted: Owner): boolean {
  try {
    servedBy(wanted)(found);
    return true;
  } catch {
    return false;
  }
}

function checkAge(at: number, policy: RotationPolicy, { now, maxAgeSeconds: given }: SavedSetRule): void {
  const maxAgeSeconds = maxSavedSetSeconds(given, policy);
  if (at > now + policy.clockSkewSeconds * 1000)
    throw new Unusable(`its timestamp is ${durationText(at - now)} in the future; correct the clock`);
  if (now - at <= maxAgeSeconds * 1000) return;
  throw new Unusable(
    `it was last up to date ${durationText(now - at)} ago, but maxSavedSetSeconds allows only ${maxAgeSeconds} s`,
  );
}
