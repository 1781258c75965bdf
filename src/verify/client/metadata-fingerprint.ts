import { isGiven } from "../../base/json.ts";
import { textHash } from "../../keys/crypto/text-sha256.ts";
import type { ClientMethod } from "./auth-method.ts";
import type { ClientMetadata } from "./document-metadata.ts";

/** A part of a client's metadata that a user or a server trusted. */
export type ClientPart = "method" | "keys" | "redirectUris" | "display";

const partNames: readonly ClientPart[] = ["method", "keys", "redirectUris", "display"];
/** Members that a consent page shows, in any language. @see RFC 7591 section 2.2 */
const displayed = /^(?:client_name|client_uri|logo_uri|tos_uri|policy_uri)(?:#|$)/;
/**
 * Length of a hash, in characters. Sixteen base64url characters hold 96 bits, so a client that wants two documents with
 * the same fingerprint needs 2^48 attempts, and could only hide changes to its own document.
 */
const hashLength = 16;

/** Returns a string that contains a hash of each part, for a later comparison with `changedParts`. */
export async function fingerprintOf(metadata: ClientMetadata, method: ClientMethod): Promise<string> {
  const { jwks, jwks_uri: jwksUri, redirect_uris: redirectUris } = metadata;
  const display = Object.entries(metadata).filter(([name, value]) => displayed.test(name) && isGiven(value));
  const parts: Readonly<Record<ClientPart, unknown>> = {
    method,
    keys: method === "none" ? undefined : isGiven(jwksUri) ? jwksUri : jwks,
    redirectUris: redirectUris.toSorted(),
    display: display.toSorted(([one], [other]) => (one < other ? -1 : 1)),
  };
  const hashes = partNames.map(async (name) => (await textHash(JSON.stringify([parts[name]]))).slice(0, hashLength));
  return (await Promise.all(hashes)).join(".");
}

/** Returns the parts that differ. If `since` is not a fingerprint, returns all parts. */
export function changedParts(since: string, fingerprint: string): readonly ClientPart[] {
  const [before, after] = [since.split("."), fingerprint.split(".")];
  return partNames.filter((_, index) => before[index] !== after[index]);
}
