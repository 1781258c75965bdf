import { invalidClaims } from "../../base/errors.ts";
import type { Claims, SignOptions } from "./sign.ts";

/**
 * The options of a token, with their defaults. Checks also that the claims are plain.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`: whatever is wrong about a token is a TokenError
 */
export function checkedOptions(claims: Claims, options: SignOptions | undefined) {
  const typ = options?.typ ?? "JWT";
  const header = options?.header ?? {};
  const lifetimeSeconds = options?.lifetimeSeconds ?? undefined;
  const signal = options?.signal ?? undefined;
  for (const [name, value] of Object.entries({ claims, header })) checkPlain(name, value);
  if (typeof typ !== "string" || typ === "") throw invalidClaims("typ must be a string that is not empty");
  if (signal !== undefined && typeof signal?.addEventListener !== "function")
    throw invalidClaims("signal must be an AbortSignal");
  return { typ, header, lifetimeSeconds, signal };
}

/** @throws TokenError `ERR_CLAIMS_INVALID` for what would be another object in JSON */
export function checkPlain(name: string, value: unknown): void {
  // The JSON of a Map, an Error or a Promise is an empty object.
  if (!isPlainObject(value)) throw invalidClaims(`${name} must be a plain object`);
  // toJSON() could replace what is set here: iss and exp, or alg and kid.
  if (typeof (value as { toJSON?: unknown }).toJSON === "function")
    throw invalidClaims(`${name} must be plain data, without toJSON()`);
}

function isPlainObject(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  // Object.prototype of another realm counts as well.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
