import type { LookupFunction } from "node:net";
import type { Address } from "./host-addresses.ts";

/** The option `lookup` of a connection that may go to these addresses only. */
export function lookupOf(addresses: readonly Address[]): LookupFunction {
  return (_host, { all }, callback) => {
    if (all === true) callback(null, [...addresses]);
    else callback(null, (addresses[0] as Address).address, (addresses[0] as Address).family);
  };
}
