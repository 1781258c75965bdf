import { TokenError } from "../../base/errors.ts";

/** The `typ` header that a token must have. */
export interface TypRule {
  /** Media type, with or without `application/`. */
  readonly typ: string;
  /** Whether `JWT` and a missing `typ` are also accepted, which leaves the decision to the claims. Default: `false`. */
  readonly acceptsPlain?: boolean;
  /** Remedy to suggest to the token's sender. Default: none. */
  readonly remedy?: string;
  /** Hint for the operator. Default: none. */
  readonly hint?: string;
}

/**
 * Rejects a token that was signed for a different use, such as `dpop+jwt` or `logout+jwt`.
 *
 * @throws TokenError `ERR_TOKEN_TYP`
 * @see RFC 8725 section 3.11
 */
export function checkTyp(header: { readonly typ?: unknown }, rule: TypRule): void {
  const { typ, acceptsPlain = false, remedy, hint } = rule;
  const type = shortType(header.typ);
  if (type === shortType(typ) || (acceptsPlain && (type === undefined || type === "jwt"))) return;
  const problem = acceptsPlain ? `neither ${typ} nor JWT` : `not ${typ}`;
  throw new TokenError("ERR_TOKEN_TYP", `the token's typ is ${problem}${remedy === undefined ? "" : `; ${remedy}`}`, {
    hint,
  });
}

/** Converts a media type to its short form. @see RFC 7515 section 4.1.9 */
function shortType(typ: unknown): string | undefined {
  if (typ === undefined) return undefined;
  return typeof typ === "string" ? typ.toLowerCase().replace(/^application\/(?!.*\/)/, "") : "";
}
