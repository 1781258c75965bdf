import { StateError, invalidOption } from "../../base/errors.ts";
import { kidText } from "../../base/format.ts";
import { type KeyRecord, isLive } from "../../rotation/rules/records.ts";

/** So that a prefix is not met by chance: 36 bits of a thumbprint. */
const leastPrefix = 6;

/**
 * The kid that an operator means: the kid itself, or a beginning that no other kid has.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`: several kids begin with it
 * @throws StateError `ERR_KID_UNMANAGED`
 */
export function resolveKid(records: readonly KeyRecord[], given: string): string {
  if (records.some(({ kid }) => kid === given)) return given;
  const begin = given.length < leastPrefix ? [] : records.filter(({ kid }) => kid.startsWith(given));
  const [only] = begin;
  if (only !== undefined && begin.length === 1) return only.kid;
  const name = JSON.stringify(given);
  if (only !== undefined)
    throw invalidOption(`${begin.length} kids begin with ${name}; give more of one:${list(begin)}`);
  const why = given.length < leastPrefix ? `; a prefix has ${leastPrefix} characters or more` : ", and none begins so";
  throw new StateError(
    "ERR_KID_UNMANAGED",
    `no key of the store has the kid ${name}${why}; the keys in use are:${list(records.filter(isLive))}`,
  );
}

const list = (records: readonly KeyRecord[]): string =>
  records.map(({ kid, use, state }) => `\n- ${kidText(kid)}, ${use} ${state}`).join("");
