// What requests to hosts from outside have in common.

import type { ClientRequest } from "node:http";
import { type LookupFunction, isIP } from "node:net";
import type { Address } from "./host-addresses.ts";

/** A server could send informational responses (1xx) without end. */
const maxInformational = 16;

/** The addresses of the host of a URL, which may be an address itself. */
export async function addressesOf(
  hostname: string,
  resolve: (host: string) => Promise<readonly Address[]>,
): Promise<readonly Address[]> {
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  return isIP(host) === 0 ? resolve(host) : [{ address: host, family: isIP(host) }];
}

/** The option `lookup` of a connection that may go to these addresses only. */
export function lookupOf(addresses: readonly Address[]): LookupFunction {
  return (_host, { all }, callback) => {
    if (all === true) callback(null, [...addresses]);
    else callback(null, (addresses[0] as Address).address, (addresses[0] as Address).family);
  };
}

/** Ends a request with this error when its server sends informational responses without end. */
export function limitInformational(request: ClientRequest, error: (status: number) => Error): void {
  let count = 0;
  request.on("information", ({ statusCode }) => {
    count += 1;
    if (count > maxInformational) request.destroy(error(statusCode));
  });
}
