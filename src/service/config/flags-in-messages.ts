import { flagName, settingNames, variableName } from "./setting-definitions.ts";

// A name in quotation marks is a member of a JSON file, so it is not replaced.
const optionNames = new RegExp(
  `(?<!["\\w])(${[...settingNames.filter((name) => /[A-Z]/.test(name)), "wrappingKeys", "allowInsecure"].join("|")})(?!["\\w])`,
  "g",
);

const wrappingKeys = `${flagName("wrappingKeyFile")} or ${variableName("wrappingKeys")}`;

/** Adapts a library message for the service and the commands by replacing option names with flags. */
export const withFlags = (message: string): string =>
  message.replace(optionNames, (name) => (name === "wrappingKeys" ? wrappingKeys : flagName(name)));
