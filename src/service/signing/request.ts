import { invalidClaims } from "../../base/errors.ts";
import { isTooLarge } from "../../base/json.ts";
import { type Given, type Rules, anything, checkOptions, object } from "../../base/options.ts";
import { checkMembersOnce } from "../../sign/token/names.ts";
import type { Claims, SignOptions } from "../../sign/token/sign-options.ts";

/** The body of `POST /sign`: claims, beside the options of `provider.sign`. */
interface SignRequest extends Omit<Given<SignOptions>, "signal"> {
  readonly claims: Claims;
  /** By which policies judge, so `exp` cannot stand in for it. */
  readonly lifetimeSeconds: number;
}

/** `sign` checks the values. */
const rules: Rules<SignRequest> = { claims: object, lifetimeSeconds: anything, typ: anything, header: anything };

/** Objects and arrays inside each other, the whole counted. Some readers of JSON take no more, such as that of .NET. */
const maxDepth = 64;

const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Reads the body of a request. No message quotes it.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function readSignRequest(body: Uint8Array): SignRequest {
  const request = checkOptions<Partial<SignRequest>>(readJson(body, "the body"), rules, "member");
  if (request.claims === undefined) throw invalidClaims('member "claims" is missing');
  if (request.lifetimeSeconds === undefined) throw invalidClaims('member "lifetimeSeconds" is missing');
  // A library in this process may choose `iat` and `exp`. A caller from outside could date a token to before a revocation.
  const time = ["iat", "exp"].find((name) => request.claims?.[name] !== undefined);
  if (time !== undefined)
    throw invalidClaims(`claim "${time}" is set from the clock and lifetimeSeconds; leave it out`);
  return request as SignRequest;
}

/**
 * Reads an object of JSON.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID` also where a member is there twice, or a number would not be signed as it was sent
 * @see RFC 8259 sections 4, 6 and 8.1
 */
export function readJson(bytes: Uint8Array, what: string): Readonly<Record<string, unknown>> {
  if (bytes.length === 0) throw invalidClaims(`${what} is empty, and must be a JSON object`);
  const text = tried(() => decoder.decode(bytes), `${what} is not UTF-8`);
  const value = tried((): unknown => JSON.parse(text), `${what} is not JSON`);
  checkMembersOnce(text, what);
  if (isDeeper(value, maxDepth))
    throw invalidClaims(`${what} has more than ${maxDepth} objects and arrays inside each other`);
  // A reviver is slow, and most requests have no such number.
  if (/\d{16}/.test(text)) JSON.parse(text, refuseRounded);
  if (!object.holds(value)) throw invalidClaims(`${what} is not a JSON object`);
  return value as Record<string, unknown>;
}

/** The messages of both parsers quote what they read. */
function tried<T>(parse: () => T, message: string): T {
  try {
    return parse();
  } catch {
    throw invalidClaims(message);
  }
}

function isDeeper(value: unknown, most: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return most === 0 || Object.values(value).some((inner) => isDeeper(inner, most - 1));
}

function refuseRounded(this: unknown, name: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (!isTooLarge(value, context?.source)) return value;
  throw invalidClaims(`the number of "${name}" is beyond 2^53 - 1 and would be rounded; send it as a string`);
}
