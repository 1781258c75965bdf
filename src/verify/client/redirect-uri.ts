import { isLoopback } from "../../base/urls.ts";

const loopback = /^(http:\/\/(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d{1,5})?(?=[/?]|$)/;

const withoutPort = (uri: string): string => uri.replace(loopback, "$1");

/**
 * Reports whether a request's redirect URI is registered, which means that it equals one of the client's redirect URIs,
 * character by character. The port of `http://127.0.0.1`, `http://[::1]` and `http://localhost` may differ, because a
 * native application listens on any free port.
 *
 * @see RFC 9700 section 4.1.3; RFC 8252 section 7.3
 */
export function isRegisteredRedirectUri(requested: string, registered: readonly string[]): boolean {
  return registered.some(
    (uri) =>
      uri === requested ||
      (loopback.test(uri) && withoutPort(uri) === withoutPort(requested) && URL.canParse(requested)),
  );
}

/** Reports whether all of a client's redirect URIs are on the user's machine, where any program can listen. */
export const areLoopback = (registered: readonly string[]): boolean =>
  registered.every((uri) => isLoopback(new URL(uri).hostname));
