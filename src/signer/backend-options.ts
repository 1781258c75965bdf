import { ConfigError } from "../errors.ts";

/** What an option must be, as a message says it, and whether a value is that. */
export type Rule = readonly [rule: string, holds: (value: unknown) => boolean];

export type Rules<Options> = { readonly [Name in keyof Required<Options>]: Rule };

const isFunction = (value: unknown): boolean => typeof value === "function";

/** An option that holds code. `without` says what a file does, which cannot have it. */
export function hasMethods(what: string, methods: readonly string[], without: string): Rule {
  const holds = (value: unknown): boolean =>
    typeof value === "object" && value !== null && methods.every((name) => isFunction(Reflect.get(value, name)));
  return [`${what}, which only code can give; ${without}`, holds];
}

/** {@link hasMethods} for a function. */
export const functionThat = (what: string, without: string): Rule => [
  `a function ${what}, which only code can give; ${without}`,
  isFunction,
];

export const text: Rule = ["a text", (value) => typeof value === "string" && value !== ""];

export const textLike = (rule: string, holds: (value: string) => boolean): Rule => [
  rule,
  (value) => typeof value === "string" && holds(value),
];

export const oneOf = (...values: readonly string[]): Rule =>
  textLike(values.join(" or "), (value) => values.includes(value));

export const httpUrl: Rule = textLike(
  "an https URL",
  (value) => URL.canParse(value) && /^https?:$/.test(new URL(value).protocol),
);

export const integer = (min: number, max: number): Rule => [
  `a whole number from ${min} to ${max}`,
  (value) => Number.isInteger(value) && Number(value) >= min && Number(value) <= max,
];

/** No timer of a platform is longer. */
const maxMs = 2 ** 31 - 1;
const duration: Rule = [
  `a number of milliseconds from 1 to ${maxMs}`,
  (value) => typeof value === "number" && value >= 1 && value <= maxMs,
];

/** The options that all backends have. */
export const commonRules = {
  timeoutMs: duration,
  slowTimeoutMs: duration,
  clock: hasMethods("a clock with now() and setTimer()", ["now", "setTimer"], "leave it out in a file"),
} as const;

/**
 * Refuses options that do not exist and values that break a rule. They may come from a file, and a value may be a secret that was put
 * in the wrong place: no message repeats one.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function checkBackendOptions<Options>(options: Options, rules: Rules<Options>): void {
  if (typeof options !== "object" || options === null) {
    throw new ConfigError("ERR_OPTION_INVALID", "the options of a signer are an object");
  }
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(rules, name)) {
      const names = Object.keys(rules).filter((known) => known !== "clock");
      throw new ConfigError(
        "ERR_OPTION_UNKNOWN",
        `a signer has no option ${JSON.stringify(name)}; it has ${names.join(", ")}`,
      );
    }
    const [rule, holds] = rules[name as keyof Options];
    if (value !== undefined && !holds(value)) {
      throw new ConfigError("ERR_OPTION_INVALID", `the option ${name} of a signer must be ${rule}`);
    }
  }
}

/**
 * An option without which no key is made.
 *
 * @param member of the signers file, for those who run the service
 */
export function needsOption(where: string, option: string, member: string, example: string): ConfigError {
  const name = `the option ${option} (${member}.${option} of the signers file)`;
  return new ConfigError("ERR_OPTION_INVALID", `making a key in ${where} needs ${name}, such as ${example}`);
}
