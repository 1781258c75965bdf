import type { ErrorCode, JwksdError } from "../base/errors.ts";
import { flagName, settingNames } from "../service/config/setting-definitions.ts";

/** Which flags mend an error: the library does not know them. */
const advice: { readonly [Code in ErrorCode]?: string } = {
  ERR_STORE_ISSUER: "--issuer names the issuer; --data or --store, another store",
};

// A name in quotation marks is a member of a file.
const optionNames = new RegExp(
  `(?<!["\\w])(${settingNames.filter((name) => /[A-Z]/.test(name)).join("|")})(?!["\\w])`,
  "g",
);

/** An error of the library as the command line says it: with flags in the place of option names. */
export function errorText({ message, code }: JwksdError): string {
  const text = message.replace(optionNames, (name) => flagName(name));
  const hint = text.includes("--") ? undefined : advice[code];
  return `${text}${hint === undefined ? "" : `; ${hint}`} [${code}]`;
}
