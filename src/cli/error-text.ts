import type { ErrorCode, JwksdError } from "../base/errors.ts";
import { withFlags } from "../service/config/setting-names.ts";

/** Which flags and commands mend an error: the library does not know them. */
const advice: { readonly [Code in ErrorCode]?: string } = {
  ERR_STORE_ISSUER: "--issuer names the issuer; --data or --store, another store",
};

/** An error of the library as the command line says it. */
export const errorText = (error: JwksdError): string => `${withAdvice(error)} [${error.code}]`;

/** The same without the code, for a log that has it beside the message. */
export function withAdvice({ message, code }: JwksdError): string {
  const hint = message.includes("--") ? undefined : advice[code];
  return `${withFlags(message)}${hint === undefined ? "" : `; ${hint}`}`;
}
