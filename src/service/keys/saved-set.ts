import { randomUUID } from "node:crypto";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import type { JWTPayload } from "jose";
import { decodeJwt } from "jose/jwt/decode";
import { SignJWT } from "jose/jwt/sign";
import { jwtVerify } from "jose/jwt/verify";
import { unlessMissing } from "../../base/file-errors.ts";
import { jsonOf } from "../../base/json.ts";
import type { JwkSet } from "../../publish/jwk-set.ts";
import { publishedBefore } from "../../publish/keyset.ts";
import { type Owner, servedBy } from "../../rotation/custody/issuer-check.ts";
import type { WrappingKeys } from "../../rotation/custody/wrapping.ts";
import { makeFolder } from "../../node/folders.ts";
import { durationText } from "../../base/format.ts";
import { type RotationPolicy, cachedForSeconds, rotationPolicy } from "../../rotation/rules/policy.ts";
import type { Settings } from "../config/setting-definitions.ts";
import type { StoreSettings } from "../config/store-settings.ts";
import { makeDocument } from "../../publish/document.ts";

const typ = "jwksd-saved-set+jwt";

/** The last set of a store, for a start without it. */
export interface SavedSet {
  readonly set: JwkSet;
  /** When the store was last known to hold these keys, in epoch milliseconds. */
  readonly at: number;
  /** That of the store at that time. */
  readonly policy: RotationPolicy;
}

/** Why a saved set is not used, in words. */
export class Unusable extends Error {}

/**
 * Writes the public keys, and a MAC over them, their issuer, the time and the policy: a JWT (`HS256`) under a key that is derived from the
 * wrapping key. So nobody who can write the file, and has no wrapping key, can have keys of their own published.
 *
 * @throws what the file system throws
 */
export async function saveSet(
  file: string,
  { set, at, policy }: SavedSet,
  { issuer, isChosen }: Owner,
  [{ id, macKey }]: WrappingKeys,
): Promise<void> {
  const keys = set.entries.map(({ jwk }) => jwk);
  const { etag: hash } = await makeDocument(keys);
  const mac = await new SignJWT({ iss: issuer, chosen: isChosen, at, policy, set: hash })
    .setProtectedHeader({ alg: "HS256", typ, kid: id })
    .sign(macKey);
  await makeFolder(dirname(file));
  const draft = `${file}.${randomUUID()}`;
  try {
    await writeFile(draft, `${JSON.stringify({ keys, mac }, undefined, 2)}\n`, { mode: 0o600 });
    await rename(draft, file);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

export interface SavedSetRule {
  /** Whose keys are wanted. */
  readonly wanted: Owner;
  readonly wrappingKeys: WrappingKeys;
  readonly now: number;
  /** Default: by the policy of the set. */
  readonly maxAgeSeconds: number | undefined;
}

/**
 * How old a saved set may be: by default, for as long as no key can sign that the set lacks, unless an operator forced it. A process knows the
 * newest keys of `maxStaleSeconds` ago; a key that was announced after that does not sign before, and what caches hold of the set has
 * expired by then.
 */
export function maxSavedSetSeconds(
  { maxSavedSetSeconds }: Pick<Settings, "maxSavedSetSeconds">,
  { announceForSeconds, maxStaleSeconds, clockSkewSeconds }: RotationPolicy,
): number {
  const byPolicy = announceForSeconds - maxStaleSeconds - cachedForSeconds.rotation - clockSkewSeconds;
  return maxSavedSetSeconds ?? Math.max(byPolicy, 0);
}

/**
 * Reads a saved set; `undefined` where there is none.
 *
 * @throws Unusable it is damaged, not authentic, of another issuer, or too old
 * @throws what the file system throws
 */
export async function readSavedSet(file: string, rule: SavedSetRule): Promise<SavedSet | undefined> {
  const text = await unlessMissing(readFile(file, "utf8"));
  if (text === undefined) return undefined;
  const { keys, mac } = parse(text);
  const claims = await verified(mac, rule.wrappingKeys);
  if (claims["set"] !== (await makeDocument(keys)).etag)
    throw new Unusable("its keys are others than those of its MAC");
  const at = claims["at"] as number;
  checkOwner(ownerIn(claims), rule.wanted);
  const policy = rotationPolicy(claims["policy"] as RotationPolicy);
  checkAge(at, policy, rule);
  return { set: await publishedBefore(keys), at, policy };
}

/**
 * The saved set if it shows that a store held keys of this issuer. Nothing is verified, because the wrapping key may be lost with the
 * store: whoever writes a false file can keep keys from being made in an empty store, and no more.
 */
export async function savedSetOf({ savedSet: file, owner }: StoreSettings): Promise<string | undefined> {
  const text = await unlessMissing(readFile(file, "utf8")).catch(() => "");
  if (text === undefined) return undefined;
  let found: Owner;
  try {
    found = ownerIn(decodeJwt(parse(text).mac));
  } catch {
    // Damaged: somebody's keys all the same.
    return file;
  }
  // What a trial without a chosen issuer has left says nothing of the issuer that is chosen now.
  return found.isChosen === owner.isChosen && isOf(found, owner) ? file : undefined;
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
  throw new Unusable("its MAC was made under no wrapping key that is given");
}

const ownerIn = ({ iss, chosen }: JWTPayload): Owner => ({ issuer: iss ?? "", isChosen: chosen === true });

function checkOwner(found: Owner, wanted: Owner): void {
  if (!isOf(found, wanted)) throw new Unusable(`it is of issuer ${JSON.stringify(found.issuer)}`);
}

function isOf(found: Owner, wanted: Owner): boolean {
  try {
    servedBy(wanted)(found);
    return true;
  } catch {
    return false;
  }
}

function checkAge(at: number, policy: RotationPolicy, { now, maxAgeSeconds: given }: SavedSetRule): void {
  const maxAgeSeconds = maxSavedSetSeconds({ maxSavedSetSeconds: given }, policy);
  if (at > now + policy.clockSkewSeconds * 1000)
    throw new Unusable(`it is from ${durationText(at - now)} ahead; set the clock`);
  if (now - at <= maxAgeSeconds * 1000) return;
  throw new Unusable(
    `it was up to date ${durationText(now - at)} ago, and ${maxAgeSeconds} s are allowed (--max-saved-set-seconds)`,
  );
}
