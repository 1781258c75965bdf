import { flagName, settingNames, variableName } from "./setting-definitions.ts";

// A name in quotation marks is a member of a file.
const optionNames = new RegExp(
  `(?<!["\\w])(${[...settingNames.filter((name) => /[A-Z]/.test(name)), "wrappingKeys", "allowInsecure"].join("|")})(?!["\\w])`,
  "g",
);

const wrappingKeys = `${flagName("wrappingKeyFile")} or ${variableName("wrappingKeys")}`;

/** A message of the library as the service and the commands say it: with flags in the place of option names. */
export const withFlags = (message: string): string =>
  message.replace(optionNames, (name) => (name === "wrappingKeys" ? wrappingKeys : flagName(name)));
