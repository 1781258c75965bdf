// Functions for requests to external hosts.

import type { ClientRequest } from "node:http";
import { type LookupFunction, isIP } from "node:net";
import type { Address } from "./dns-lookup.ts";

/** Maximum number of informational responses (1xx). Without a limit, a server could send an endless stream of them. */
const maxInformational = 16;

/** Returns the addresses of a URL's host. If the host is itself an address, returns that address. */
export async function addressesOf(
  hostname: string,
  resolve: (host: string) => Promise<readonly Address[]>,
): Promise<readonly Address[]> {
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  return isIP(host) === 0 ? resolve(host) : [{ address: host, family: isIP(host) }];
}

/** Returns a `lookup` option that restricts a connection to these addresses. */
export function lookupOf(addresses: readonly Address[]): LookupFunction {
  return (_host, { all }, callback) => {
    if (all === true) callback(null, [...addresses]);
    else callback(null, (addresses[0] as Address).address, (addresses[0] as Address).family);
  };
}

/** Aborts a request with this error if its server sends too many informational responses. */
export function limitInformational(request: ClientRequest, error: (status: number) => Error): void {
  let count = 0;
  request.on("information", ({ statusCode }) => {
    count += 1;
    if (count > maxInformational) request.destroy(error(statusCode));
  });
}
