const loopback = /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/;

/** Whether a host name, as `URL` has it, always means this machine. @see RFC 6761 section 6.3 */
export const isLoopback = (hostname: string): boolean => loopback.test(hostname);

/** A URL from outside for a message: encoded, and without its query, which may hold a secret. */
export function shownUrl(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}

/** The path of a request target: without query, and without scheme and authority. @see RFC 9112 section 3.2 */
export function targetPath(target: string): string {
  const start = target.startsWith("/") ? 0 : (/^[a-z][a-z0-9+.-]*:\/\/[^/?]*/i.exec(target)?.[0].length ?? 0);
  const end = target.indexOf("?", start);
  return end === -1 ? (start === 0 ? target : target.slice(start)) : target.slice(start, end);
}
