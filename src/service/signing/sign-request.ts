import { invalidClaims } from "../../base/errors.ts";
import { isTooLarge } from "../../base/json.ts";
import { type Given, type Rules, anything, checkOptions, object } from "../../base/options.ts";
import { checkMembersOnce } from "../../sign/token/check-names.ts";
import type { Claims, SignOptions } from "../../sign/token/sign-options.ts";

/** The body of `POST /sign`: the claims and the options of `provider.sign`. */
interface SignRequest extends Omit<Given<SignOptions>, "signal"> {
  readonly claims: Claims;
  /** Token lifetime, in seconds. Policies limit this value, so `exp` cannot be used in its place. */
  readonly lifetimeSeconds: number;
}

/** Rules for the members. `sign` checks their values. */
const rules: Rules<SignRequest> = { claims: object, lifetimeSeconds: anything, typ: anything, header: anything };

/**
 * Maximum nesting depth of objects and arrays, including the outermost one. Some JSON parsers, such as .NET's, have
 * this limit.
 */
const maxDepth = 64;

const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Reads a request body. Error messages never quote it.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function readSignRequest(body: Uint8Array): SignRequest {
  const request = checkOptions<Partial<SignRequest>>(readJson(body, "the body"), rules, "member");
  if (request.claims === undefined) throw invalidClaims('the "claims" member is missing');
  if (request.lifetimeSeconds === undefined) throw invalidClaims('the "lifetimeSeconds" member is missing');
  // Code in this process may choose `iat` and `exp`, but an external caller could use them to backdate a token to
  // before a revocation.
  const time = ["iat", "exp"].find((name) => request.claims?.[name] !== undefined);
  if (time !== undefined)
    throw invalidClaims(`jwksd sets the "${time}" claim based on the clock and lifetimeSeconds; remove it`);
  return request as SignRequest;
}

/**
 * Reads a JSON object.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`, including for a member that occurs twice or a number that would be rounded
 * @see RFC 8259 sections 4, 6 and 8.1
 */
export function readJson(bytes: Uint8Array, name: string): Readonly<Record<string, unknown>> {
  if (bytes.length === 0) throw invalidClaims(`${name} is empty; send a JSON object`);
  const text = withMessage(() => decoder.decode(bytes), `${name} is not UTF-8`);
  const value = withMessage((): unknown => JSON.parse(text), `${name} is not JSON`);
  checkMembersOnce(text, name);
  if (isDeeper(value, maxDepth))
    throw invalidClaims(`${name} has more than ${maxDepth} levels of nested objects and arrays`);
  // Done only if needed, because a reviver is slow and few requests have a number this long.
  if (/\d{16}/.test(text)) JSON.parse(text, refuseRounded);
  if (!object.holds(value)) throw invalidClaims(`${name} is not a JSON object`);
  return value as Record<string, unknown>;
}

/** Replaces a parser's error, because the error's message quotes the input. */
function withMessage<T>(parse: () => T, message: string): T {
  try {
    return parse();
  } catch {
    throw invalidClaims(message);
  }
}

function isDeeper(value: unknown, depth: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return depth === 0 || Object.values(value).some((inner) => isDeeper(inner, depth - 1));
}

function refuseRounded(this: unknown, name: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (!isTooLarge(value, context?.source)) return value;
  throw invalidClaims(`the number in "${name}" is beyond 2^53 - 1 and would be rounded; send it as a string`);
}
