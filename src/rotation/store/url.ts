import { invalidOption } from "../../base/errors.ts";

/** How special characters of a user and a password are written. */
export const escapes = 'user and password have "/", "@", "?", "#" and "%" as %2F, %40, %3F, %23 and %25';

/**
 * The URL of a database. A password whose special characters are not escaped would be taken for a host and a path, which messages show.
 *
 * @param form what it must be, such as `mysql://USER@HOST:PORT/DATABASE`
 * @throws ConfigError `ERR_OPTION_INVALID`; the message does not show the URL
 */
export function databaseUrl(text: string, schemes: RegExp, form: string): URL {
  const url = URL.parse(text);
  if (url === null || !schemes.test(url.protocol))
    throw invalidOption(`the URL of the database must be in the form ${form}`);
  if (!isEscaped(url)) throw invalidOption(`the URL of the database must be one whose ${escapes}`);
  return url;
}

/** Whether user and password can be told from the rest. */
export function isEscaped({ username, password, pathname, search, hash }: URL): boolean {
  if (`${pathname}${search}${hash}`.includes("@")) return false;
  try {
    decodeURIComponent(`${username}${password}`);
    return true;
  } catch {
    return false;
  }
}
