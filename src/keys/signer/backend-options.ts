import { type ConfigError, invalidOption } from "../../base/errors.ts";
import { type Given, type Rule, type Rules, checkOptions, stringThat, timeout } from "../../base/options.ts";

/** Returns the rule for an option that a signers file cannot contain. @param otherwise what to do instead in a file */
export const onlyFromCode = (rule: Rule, otherwise: string): Rule => ({
  ...rule,
  must: `${rule.must}, which only code can give (${otherwise})`,
});

export const httpUrl = stringThat(
  "an https URL",
  (value) => URL.canParse(value) && /^https?:$/.test(new URL(value).protocol),
);

/** Time limit for opening, generating or destroying a key, in milliseconds, including a search for credentials. */
export const slowTimeoutMs = 30_000;

/** Options of all backends. */
export const backendRules = {
  timeoutMs: timeout,
} as const;

/** Checks options, which may come from a file. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export const checkBackendOptions = <Options>(options: Options, rules: Rules<Options>): Given<Options> =>
  checkOptions(options, rules, "signer option");

/**
 * Returns the error for a missing option that generating a key needs.
 *
 * @param member the member of the signers file that has the option
 */
export function needsOption(where: string, option: string, member: string, example: string): ConfigError {
  const name = `the ${option} option (${member}.${option} in the signers file)`;
  return invalidOption(`generating a key in ${where} needs ${name}, such as ${example}`);
}
