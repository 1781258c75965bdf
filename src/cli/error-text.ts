import type { JwksdErrorCode, JwksdError } from "../base/errors.ts";
import { withFlags } from "../service/config/flags-in-messages.ts";

/** Remedies, keyed by error code. They name flags and commands, which the library does not know about. */
const advice: { readonly [Code in JwksdErrorCode]?: string } = {
  ERR_STORE_ISSUER: "the relevant flags are --issuer, --store and --data",
};

/** Returns the command-line message for a library error. */
export const errorText = (error: JwksdError): string => `${withAdvice(error)} [${error.code}]`;

/** Works like `errorText`, but leaves out the code, for logs that have a separate field for the code. */
export function withAdvice({ message, code }: JwksdError): string {
  const hint = message.includes("--") ? undefined : advice[code];
  return `${withFlags(message)}${hint === undefined ? "" : `; ${hint}`}`;
}
