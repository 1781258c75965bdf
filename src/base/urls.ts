const loopback = /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/;

/** Whether a host name, as `URL` has it, always means this machine. @see RFC 6761 section 6.3 */
export const isLoopback = (hostname: string): boolean => loopback.test(hostname);

/** A URL from outside for a message: encoded, and without its query, which may hold a secret. */
export function shownUrl(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}
