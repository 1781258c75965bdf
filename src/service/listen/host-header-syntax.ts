import { isIPv6 } from "node:net";

// uri-host [ ":" port ]. The name may be empty. The part in brackets is checked below.
const hostAndPort = /^(?:\[([^\]]*)\]|(?:[\w\-.~!$&'()*+,;=]|%[\dA-Fa-f]{2})*)(?::\d*)?$/;
const futureAddress = /^v[\dA-Fa-f]+\.[\w\-.~!$&'()*+,;=:]+$/i;

/**
 * Reports whether a `Host` header value is valid.
 *
 * @see RFC 9110 section 7.2; RFC 3986 section 3.2.2
 */
export function isHost(value: string): boolean {
  const match = hostAndPort.exec(value);
  if (match === null) return false;
  const [, address] = match;
  return address === undefined || futureAddress.test(address) || (isIPv6(address) && !address.includes("%"));
}
