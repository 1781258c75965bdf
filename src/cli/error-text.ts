import type { JwksdErrorCode, JwksdError } from "../base/errors.ts";
import { withFlags } from "../service/config/setting-names.ts";

/** Remedies that name flags and commands, keyed by error code. The library does not know about flags and commands. */
const advice: { readonly [Code in JwksdErrorCode]?: string } = {
  ERR_STORE_ISSUER: "set --issuer, or another store with --data or --store",
};

/** Returns the message of a library error for the command line. */
export const errorText = (error: JwksdError): string => `${withAdvice(error)} [${error.code}]`;

/** Does the same as `errorText`, but leaves out the code, for logs that have the code in a field. */
export function withAdvice({ message, code }: JwksdError): string {
  const hint = message.includes("--") ? undefined : advice[code];
  return `${withFlags(message)}${hint === undefined ? "" : `; ${hint}`}`;
}
