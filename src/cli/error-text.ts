import type { ErrorCode, JwksdError } from "../base/errors.ts";
import { flagName, settingNames, variableName } from "../service/config/setting-definitions.ts";

/** Which flags and commands mend an error: the library does not know them. */
const advice: { readonly [Code in ErrorCode]?: string } = {
  ERR_WRAPPING_KEY_MISSING: "jwksd keys wrapping-keys prints the ids of a file",
  ERR_STORE_ISSUER: "--issuer names the issuer; --data or --store, another store",
};

// A name in quotation marks is a member of a file.
const optionNames = new RegExp(
  `(?<!["\\w])(${[...settingNames.filter((name) => /[A-Z]/.test(name)), "wrappingKeys"].join("|")})(?!["\\w])`,
  "g",
);

const wrappingKeys = `${flagName("wrappingKeyFile")} or ${variableName("wrappingKeys")}`;

/** An error of the library as the command line says it: with flags in the place of option names. */
export function errorText({ message, code }: JwksdError): string {
  const text = message.replace(optionNames, (name) => (name === "wrappingKeys" ? wrappingKeys : flagName(name)));
  const hint = message.includes("--") ? undefined : advice[code];
  return `${text}${hint === undefined ? "" : `; ${hint}`} [${code}]`;
}
