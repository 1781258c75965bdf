import { TokenError } from "../../base/errors.ts";
import { type Given, type Rules, strings, wholeNumber } from "../../base/options.ts";
import type { Claims, SignOptions } from "../../sign/token/sign-options.ts";

/** Restrictions on the tokens that may be signed through a socket. */
export interface SignPolicy {
  /** Allowed `typ` headers, such as `at+jwt`. Default: all. */
  readonly typ?: readonly string[] | undefined;
  /**
   * Allowed audiences. A token must have at least one of them, and no other audience. Default: allows any audience, and
   * tokens without one.
   */
  readonly audiences?: readonly string[] | undefined;
  /**
   * Maximum token lifetime, in seconds. The rotation policy's `maxTokenLifetimeSeconds` also applies, and is the
   * default.
   */
  readonly maxLifetimeSeconds?: number | undefined;
}

export const policyRules: Rules<SignPolicy> = {
  typ: strings,
  audiences: strings,
  maxLifetimeSeconds: wholeNumber(1, 1_000_000_000),
};

/** Checks a request against a socket's policy. @throws TokenError `ERR_CLAIMS_FORBIDDEN` */
export function checkAllowed(
  { typ: types, maxLifetimeSeconds = Infinity, ...policy }: SignPolicy,
  { aud }: Claims,
  { typ = "JWT", lifetimeSeconds }: Pick<Given<SignOptions>, "typ"> & { readonly lifetimeSeconds: number },
): void {
  if (types !== undefined && !types.includes(typ)) throw forbidden(`typ ${oneOf(types)}`);
  // `sign` rejects a lifetime that is not a number.
  if (typeof lifetimeSeconds === "number" && lifetimeSeconds > maxLifetimeSeconds)
    throw forbidden(`lifetimes of up to ${maxLifetimeSeconds} seconds`);
  checkAllowedAudience(policy, aud);
}

/** Checks the audiences of a token. @throws TokenError `ERR_CLAIMS_FORBIDDEN` */
export function checkAllowedAudience({ audiences }: Pick<SignPolicy, "audiences">, aud: unknown): void {
  if (audiences === undefined) return;
  const given: readonly unknown[] = Array.isArray(aud) ? [...(aud as unknown[])] : [aud];
  const isAllowed = given.length > 0 && given.every((name) => audiences.includes(name as string));
  if (!isAllowed) throw forbidden(`the audiences ${oneOf(audiences)}`);
}

export function forbidden(allowed: string): TokenError {
  return new TokenError("ERR_CLAIMS_FORBIDDEN", `this socket allows only ${allowed}`);
}

const oneOf = (names: readonly string[]): string => names.map((name) => JSON.stringify(name)).join(", ");
