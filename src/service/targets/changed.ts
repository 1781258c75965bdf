import { jsonOf } from "../../base/json.ts";
import { quoted } from "../../base/printable.ts";
import { cacheControl } from "../../publish/respond.ts";
import type { DocumentSet, StaticDocument } from "./documents.ts";

/** A file of a target as it was seen there. */
export interface TargetFile {
  readonly body: Uint8Array;
  readonly etag?: string | undefined;
  readonly contentType?: string | undefined;
  readonly cacheControl?: string | undefined;
}

/** A file that is not as it was published. */
export interface ChangedFile {
  readonly path: string;
  /** `undefined` where it is gone. */
  readonly there: TargetFile | undefined;
}

/**
 * Why a file that somebody else has changed is left as it is, or `undefined` where the file is to be written again. A file is left if its keys
 * are the same, and if another store or newer key files may have made it. So two publishers of one target never overwrite each other by turns.
 *
 * @param knows whether a key with this kid has ever been in the store or is in the files of this publisher
 */
export function whyLeft(
  { path, there }: ChangedFile,
  { documents }: DocumentSet,
  knows: (kid: string) => boolean,
): string | undefined {
  const ours = documents.find((document) => document.path === path);
  // Configurations for servers are nobody else's.
  if (ours === undefined || there === undefined) return undefined;
  const [own, theirs] = [objectOf(ours.body), objectOf(there.body)];
  if (Array.isArray(own["keys"])) {
    const keys = keysIn(there.body);
    const unknown = keys?.find(({ kid }) => typeof kid === "string" && !knows(kid));
    if (unknown !== undefined) return `the key ${quoted(unknown["kid"])}, which is not known here`;
    if (keys === undefined || textOf(keys) !== textOf(own["keys"])) return undefined;
  } else {
    if (typeof theirs["issuer"] !== "string") return undefined;
    for (const name of ["issuer", "jwks_uri"])
      if (theirs[name] !== own[name]) return `the ${name} ${quoted(theirs[name])}`;
  }
  return isSent(there, ours) ? "the same keys and other text" : undefined;
}

/** Whether the header fields of a file are right for relying parties, and caches keep the file for no longer than a rotation waits. */
function isSent(there: TargetFile, ours: StaticDocument): boolean {
  const modes: readonly unknown[] = [ours.cacheControl, cacheControl.long, cacheControl.rotation];
  return there.contentType === ours.contentType && modes.includes(there.cacheControl);
}

type Json = Readonly<Record<string, unknown>>;

/** The members of a JSON object; none of any other text. */
function objectOf(body: Uint8Array | undefined): Json {
  return Object(jsonOf(Buffer.from(body ?? []).toString())) as Json;
}

/** The keys of a JWK Set; `undefined` for any other text. */
export function keysIn(body: Uint8Array | undefined): readonly Json[] | undefined {
  const { keys } = objectOf(body);
  return Array.isArray(keys) ? keys.map((key) => Object(key) as Json) : undefined;
}

const textOf = (keys: readonly unknown[]): string =>
  keys
    .map((key) => JSON.stringify(key))
    .toSorted()
    .join();
