import { nearest } from "./closest-name.ts";
import { ConfigError, invalidOption } from "./errors.ts";
import { checkRuntime } from "./runtime-support.ts";

/** Type of a value, as named in messages. Arrays do not count as objects. */
type ValueType = "string" | "number" | "boolean" | "function" | "object" | "array";

/** A rule for valid values. */
export interface Rule<Value = unknown> {
  /** End of the sentence "it must be …". */
  readonly must: string;
  /** All valid values, if only a fixed set of values is valid. */
  readonly choices?: readonly string[];
  /** Types that a valid value can have. If a value has a different type, error messages mention its type. */
  readonly types: readonly ValueType[];
  /** Whether the option must be given. */
  readonly isRequired?: true;
  readonly holds: (value: unknown) => value is Value;
}

/** The rules for all options, keyed by name. */
export type Rules<Options> = { readonly [Name in keyof Required<Options>]: Rule };

export const string: Rule<string> = {
  must: "a string",
  types: ["string"],
  holds: (value) => typeof value === "string",
};

export const nonEmptyString: Rule<string> = {
  must: "a non-empty string",
  types: ["string"],
  holds: (value): value is string => string.holds(value) && value !== "",
};

export const stringThat = (must: string, holds: (value: string) => boolean): Rule<string> => ({
  must,
  types: ["string"],
  holds: (value): value is string => nonEmptyString.holds(value) && holds(value),
});

export const strings: Rule<readonly string[]> = {
  must: "an array of non-empty strings",
  types: ["array"],
  holds: (value): value is string[] => Array.isArray(value) && value.every(nonEmptyString.holds),
};

export const oneOf = <Value extends string>(...values: readonly Value[]): Rule<Value> => ({
  must: [values.slice(0, -1).join(", "), values.at(-1)].filter(Boolean).join(" or "),
  choices: values,
  types: ["string"],
  holds: (value): value is Value => values.includes(value as Value),
});

export const boolean: Rule<boolean> = {
  must: "true or false",
  types: ["boolean"],
  holds: (value) => typeof value === "boolean",
};

export const number = (least: number, most = Infinity): Rule<number> => ({
  must: most === Infinity ? `a number greater than or equal to ${least}` : `a number from ${least} to ${most}`,
  types: ["number"],
  holds: (value): value is number => Number.isFinite(value) && (value as number) >= least && (value as number) <= most,
});

export const wholeNumber = (least: number, most: number): Rule<number> => ({
  must: `a whole number from ${least} to ${most}`,
  types: ["number"],
  holds: (value): value is number => Number.isInteger(value) && number(least, most).holds(value),
});

/**
 * Rule for a clock tolerance, in seconds. The maximum is low because tokens are still accepted for that long after they
 * expire.
 * @see RFC 7519 section 4.1.4: "no more than a few minutes"
 */
export const clockTolerance = number(0, 300);

/** Rule for a timeout, in milliseconds. The maximum is the longest delay that `setTimeout` supports. */
export const timeout = number(1, 2 ** 31 - 1);

export const callback: Rule<object> = {
  must: "a function",
  types: ["function"],
  holds: (value): value is object => typeof value === "function",
};

export const array: Rule<readonly unknown[]> = { must: "an array", types: ["array"], holds: Array.isArray };

export const object: Rule<object> = {
  must: "an object",
  types: ["object"],
  holds: (value): value is object => typeof value === "object" && value !== null && !Array.isArray(value),
};

export const withMethods = (...names: readonly string[]): Rule<object> => ({
  must: `an object with the methods ${names.join(", ")}`,
  types: ["object"],
  holds: (value): value is object =>
    object.holds(value) && names.every((name) => callback.holds(Reflect.get(value, name))),
});

export const clock = withMethods("now", "setTimer");

/** The value of an option that may be omitted. `null` and `undefined` mean that the option is not given. */
export type Optional<Value> = Value | null | undefined;

/** Options without `null` values, which mean "not given". */
export type Given<Options> = { readonly [Name in keyof Options]: Exclude<Options[Name], null> };

/** Makes a rule's option mandatory. */
export const required = <Value>(rule: Rule<Value>): Rule<Value> => ({ ...rule, isRequired: true });

/** Rule for a value that is only checked when it is used. */
export const anything: Rule = { must: "anything", types: [], holds: (_value): _value is unknown => true };

/**
 * Rejects unknown options, invalid values, and missing mandatory options. `null` and `undefined` mean that an option is
 * not given.
 *
 * @param what the noun that messages use for an option
 * @returns the given options
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`; `ERR_PACKAGE_MISSING` if the runtime is too old
 */
export function checkOptions<Options>(options: Options, rules: Rules<Options>, what = "option"): Given<Options> {
  // Every function in the library that creates something calls this one, because it checks its options.
  checkRuntime();
  if (options !== undefined && (!object.holds(options) || isPromise(options))) {
    throw invalidOption(`an object is expected${actual(options, [])}`);
  }
  const given: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options ?? {})) {
    if (!Object.hasOwn(rules, name)) {
      const known = Object.keys(rules);
      const meant = nearest(name, known);
      const hint = meant === undefined ? `; choose from ${known.join(", ")}` : `; did you mean "${meant}"?`;
      throw new ConfigError("ERR_OPTION_UNKNOWN", `there is no ${JSON.stringify(name)} ${what}${hint}`);
    }
    const rule: Rule = rules[name as keyof Options];
    if (value === null || value === undefined) continue;
    given[name] = value;
    checkArgument(`the "${name}" ${what}`, value, rule);
  }
  for (const name in rules) {
    const { isRequired, must }: Rule = rules[name];
    if (isRequired === true && given[name] === undefined)
      throw invalidOption(`the "${name}" ${what} is missing; set it to ${must}`);
  }
  return given as Given<Options>;
}

/** Checks a value. @param what the value's name in messages @throws ConfigError `ERR_OPTION_INVALID` */
export function checkArgument(what: string, value: unknown, rule: Rule): void {
  if (!rule.holds(value)) throw invalidOption(`${what} must be ${rule.must}${actual(value, rule.types)}`);
}

export const isPromise = (value: unknown): boolean => callback.holds((value as Partial<Promise<unknown>> | null)?.then);

/**
 * Describes an invalid value for a message. Shows a number as is, but only the type of any other value, because a
 * string may be a misplaced secret.
 */
function actual(value: unknown, types: Rule["types"]): string {
  if (isPromise(value)) return ", not a promise; await it";
  if (value === null || value === undefined) return `, not ${value}`;
  const type = Array.isArray(value) ? "array" : typeof value;
  if (!types.includes(type as ValueType)) return `, not ${/^[ao]/.test(type) ? "an" : "a"} ${type}`;
  return type === "number" ? `, not ${value as number}` : "";
}
