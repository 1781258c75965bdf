import { cacheControl } from "../../base/cache-control.ts";
import { jsonOf } from "../../base/json.ts";
import { quoted } from "../../base/printable.ts";
import type { DocumentSet, StaticDocument } from "./documents.ts";

/** A file that was read back from a target. */
export interface TargetFile {
  readonly body: Uint8Array;
  readonly etag?: string | undefined;
  readonly contentType?: string | undefined;
  readonly cacheControl?: string | undefined;
}

/** A file that differs from the published one. */
export interface ChangedFile {
  readonly path: string;
  /** The current file, or `undefined` if it no longer exists. */
  readonly current: TargetFile | undefined;
}

/**
 * Returns the reason why a file that another process has changed must not be overwritten, or `undefined` if it may be
 * overwritten. The file is kept if it has the same keys, or if it may come from a different store or from newer key
 * files. Two publishers that share a target therefore do not keep overwriting each other's files.
 *
 * @param knows reports whether a key with this kid has ever been in the store or is in this publisher's key files
 */
export function whyKept(
  { path, current }: ChangedFile,
  { documents }: DocumentSet,
  knows: (kid: string) => boolean,
): string | undefined {
  const ours = documents.find((document) => document.path === path);
  // This file is only for servers, and only jwksd writes it.
  if (ours === undefined || current === undefined) return undefined;
  const [own, theirs] = [objectOf(ours.body), objectOf(current.body)];
  if (Array.isArray(own["keys"])) {
    const keys = keysIn(current.body);
    const unknown = keys?.find(({ kid }) => typeof kid === "string" && !knows(kid));
    if (unknown !== undefined) return `the key ${quoted(unknown["kid"])}, which this publisher does not recognize`;
    if (keys === undefined || sortedJson(keys) !== sortedJson(own["keys"])) return undefined;
  } else {
    if (typeof theirs["issuer"] !== "string") return undefined;
    for (const name of ["issuer", "jwks_uri"])
      if (theirs[name] !== own[name]) return `the ${name} ${quoted(theirs[name])}`;
  }
  return hasRightHeaders(current, ours) ? "the same content in another form" : undefined;
}

/**
 * Reports whether a file has the right headers for relying parties, and whether caches keep it no longer than a
 * rotation allows for.
 */
function hasRightHeaders(current: TargetFile, ours: StaticDocument): boolean {
  const modes: readonly unknown[] = [ours.cacheControl, cacheControl.long, cacheControl.rotation];
  return current.contentType === ours.contentType && modes.includes(current.cacheControl);
}

type Json = Readonly<Record<string, unknown>>;

/** Returns the members of the JSON object in a body, or no members if the body is anything else. */
function objectOf(body: Uint8Array | undefined): Json {
  return Object(jsonOf(Buffer.from(body ?? []).toString())) as Json;
}

/** Returns the keys of the JWK Set in a body, or `undefined` if the body is anything else. */
export function keysIn(body: Uint8Array | undefined): readonly Json[] | undefined {
  const { keys } = objectOf(body);
  return Array.isArray(keys) ? keys.map((key) => Object(key) as Json) : undefined;
}

const sortedJson = (keys: readonly unknown[]): string =>
  keys
    .map((key) => JSON.stringify(key))
    .toSorted()
    .join();
