import * as base64url from "jose/base64url";
import type { Code } from "./codes.ts";

/** A decoded base64url value. */
export interface Decoded {
  readonly bytes: Uint8Array;
  /** Finding about the encoding. Absent if the value is strict base64url. */
  readonly problem?: Code;
}

/** Decodes text leniently, so that an invalid encoding causes only one finding. */
export function decode(text: string): Decoded {
  const bytes = base64url.decode(lax(text));
  if (!/^[\w-]*=*$/.test(text)) return { bytes, problem: "JWKS_BASE64URL_ALPHABET" };
  if (text.replace(/=+$/, "").length % 4 === 1) return { bytes, problem: "JWKS_BASE64URL_LENGTH" };
  if (text.endsWith("=")) return { bytes, problem: "JWKS_BASE64URL_PADDING" };
  return base64url.encode(bytes) === text ? { bytes } : { bytes, problem: "JWKS_BASE64URL_BITS" };
}

function lax(text: string): string {
  const kept = text
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll(/[^\w-]/g, "");
  // A single character at the end encodes less than a byte.
  return kept.length % 4 === 1 ? kept.slice(0, -1) : kept;
}

/** Reads bytes as an unsigned integer, most significant byte first. */
export function integer(bytes: Uint8Array): bigint {
  let hex = "";
  for (const byte of bytes) hex += byte.toString(16).padStart(2, "0");
  return hex === "" ? 0n : BigInt(`0x${hex}`);
}
