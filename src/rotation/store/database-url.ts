import { invalidOption } from "../../base/errors.ts";
import { type Rule, string, withMethods } from "../../base/options.ts";

/** Text for messages: the rule for special characters in user names and passwords. */
export const escapes = String.raw`with "/", "\", "@", "?", "#" and "%" in the user and password percent-encoded as %2F, %5C, %40, %3F, %23 and %25`;

/** Creates the rule for a database option that must be a URL or a client with one of these methods. */
export const urlOr = (client: string, ...methods: readonly string[]): Rule => ({
  must: `a URL or ${client}`,
  types: ["string"],
  holds: (value): value is unknown => string.holds(value) || methods.some((method) => withMethods(method).holds(value)),
});

/**
 * Parses a database URL.
 *
 * @param form required form of the URL, such as `mysql://USER@HOST:PORT/DATABASE`
 * @throws ConfigError `ERR_OPTION_INVALID`; the message does not show the URL
 */
export function databaseUrl(text: string, schemes: RegExp, form: string): URL {
  const url = isEscaped(text) ? URL.parse(text) : null;
  if (url === null || !schemes.test(url.protocol))
    throw invalidOption(`the database URL must have the form ${form}, ${escapes}`);
  return url;
}

/**
 * Reports whether the user and password are escaped. If they are not, part of a password could be mistaken for a host
 * or path and would then appear in messages.
 */
export function isEscaped(text: string): boolean {
  const found = /^[a-z]+:\/\/(?:([^@/\\?#]*)@)?[^@]*$/i.exec(text);
  try {
    return found !== null && decodeURIComponent(found[1] ?? "") !== undefined;
  } catch {
    // A "%" that encodes nothing, or bytes that are not UTF-8.
    return false;
  }
}
