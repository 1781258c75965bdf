import { ConfigError } from "../errors.ts";
import { type Rule, type Rules, checkOptions, clock, textThat, timeout } from "../options.ts";

/** An option that holds code. @param otherwise what comes of it in a file, which cannot have it */
export const onlyFromCode = ({ must, holds }: Rule, otherwise: string): Rule => ({
  must: `${must}, which only code can give (${otherwise})`,
  holds,
});

export const httpUrl = textThat(
  "an https URL",
  (value) => URL.canParse(value) && /^https?:$/.test(new URL(value).protocol),
);

/** The rules of the options that all backends have. */
export const backendRules = {
  timeoutMs: timeout,
  slowTimeoutMs: timeout,
  clock: onlyFromCode(clock, "leave it out in a file"),
} as const;

/** Options may come from a file. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export const checkBackendOptions = <Options>(options: Options, rules: Rules<Options>): Options =>
  checkOptions(options, rules, "signer option");

/**
 * An option without which no key is made.
 *
 * @param member of the signers file, for those who run the service
 */
export function needsOption(where: string, option: string, member: string, example: string): ConfigError {
  const name = `the option ${option} (${member}.${option} of the signers file)`;
  return new ConfigError("ERR_OPTION_INVALID", `making a key in ${where} needs ${name}, such as ${example}`);
}
