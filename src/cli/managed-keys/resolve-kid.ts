import { RotationError, invalidOption } from "../../base/errors.ts";
import { kidText } from "../../base/format.ts";
import { type KeyRecord, isLive } from "../../rotation/rules/key-records.ts";

/** Minimum length of a prefix. Six characters are 36 bits of a thumbprint, too many to match by chance. */
const minPrefixLength = 6;

/**
 * Returns the full kid, given the kid or an unambiguous prefix of it.
 *
 * @throws ConfigError `ERR_OPTION_INVALID` if several kids begin with it
 * @throws RotationError `ERR_KID_UNMANAGED`
 */
export function resolveKid(records: readonly KeyRecord[], given: string): string {
  if (records.some(({ kid }) => kid === given)) return given;
  const matches = given.length < minPrefixLength ? [] : records.filter(({ kid }) => kid.startsWith(given));
  const [only] = matches;
  if (only !== undefined && matches.length === 1) return only.kid;
  const name = JSON.stringify(given);
  if (only !== undefined)
    throw invalidOption(`${matches.length} kids begin with ${name}; add more characters:${list(matches)}`);
  const problem =
    given.length < minPrefixLength ? `has the kid ${name}` : `has the kid ${name} or a kid that begins with it`;
  const remedy = `use one of these kids, or a prefix of at least ${minPrefixLength} characters`;
  throw new RotationError(
    "ERR_KID_UNMANAGED",
    `no key in the store ${problem}; ${remedy}:${list(records.filter(isLive))}`,
  );
}

const list = (records: readonly KeyRecord[]): string =>
  records.map(({ kid, use, state }) => `\n- ${kidText(kid)}, ${use} ${state}`).join("");
