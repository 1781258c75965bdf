import { type ConfigError, invalidOption } from "../../base/errors.ts";
import { type Given, type Rule, type Rules, checkOptions, stringThat, timeout } from "../../base/options.ts";

/**
 * Returns the rule for an option that a signers file cannot contain.
 *
 * @param otherwise what to do in a signers file instead
 */
export const onlyFromCode = (rule: Rule, otherwise: string): Rule => ({
  ...rule,
  must: `${rule.must}, which can be set only in code (${otherwise})`,
});

export const httpUrl = stringThat(
  "an https URL",
  (value) => URL.canParse(value) && /^https?:$/.test(new URL(value).protocol),
);

/** Time limit for opening, generating or destroying a key, including the time to find credentials, in milliseconds. */
export const slowTimeoutMs = 30_000;

/** Rules for options that all backends have. */
export const backendRules = {
  timeoutMs: timeout,
} as const;

/** Checks options, which may come from a file. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export const checkBackendOptions = <Options>(options: Options, rules: Rules<Options>): Given<Options> =>
  checkOptions(options, rules, "signer option");

/**
 * Returns the error for a missing option that is needed to generate a key.
 *
 * @param member the member of the signers file that contains the option
 */
export function needsOption(where: string, option: string, member: string, example: string): ConfigError {
  const name = `the ${option} option (${member}.${option} in the signers file)`;
  return invalidOption(`to generate a key in ${where}, set ${name}, for example to ${example}`);
}
