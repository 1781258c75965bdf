import { ConfigError, invalidOption } from "./errors.ts";
import { nearest } from "./nearest.ts";
import { checkRuntime } from "./runtime.ts";

/** The rule of a value. */
export interface Rule<Value = unknown> {
  /** The end of the sentence "it must be …". */
  readonly must: string;
  /** All values, where they are few. */
  readonly choices?: readonly string[];
  /** Its values are strings. The type of a wrong string is right, and no message blames it. */
  readonly isText?: true;
  /** Whether the option must be given. */
  readonly isRequired?: true;
  readonly holds: (value: unknown) => value is Value;
}

/** The rule of each option that exists. */
export type Rules<Options> = { readonly [Name in keyof Required<Options>]: Rule };

export const string: Rule<string> = { must: "a string", holds: (value) => typeof value === "string" };

export const text: Rule<string> = {
  must: "a string that is not empty",
  holds: (value): value is string => string.holds(value) && value !== "",
};

export const textThat = (must: string, holds: (value: string) => boolean): Rule<string> => ({
  must,
  isText: true,
  holds: (value): value is string => text.holds(value) && holds(value),
});

export const texts: Rule<readonly string[]> = {
  must: "an array of strings that are not empty",
  holds: (value): value is string[] => Array.isArray(value) && value.every(text.holds),
};

export const oneOf = <Value extends string>(...values: readonly Value[]): Rule<Value> => ({
  must: `${values.slice(0, -1).join(", ")} or ${values.at(-1)}`,
  choices: values,
  isText: true,
  holds: (value): value is Value => values.includes(value as Value),
});

export const boolean: Rule<boolean> = { must: "true or false", holds: (value) => typeof value === "boolean" };

export const number = (least: number, most = Infinity): Rule<number> => ({
  must: most === Infinity ? `a number of at least ${least}` : `a number from ${least} to ${most}`,
  holds: (value): value is number => Number.isFinite(value) && (value as number) >= least && (value as number) <= most,
});

export const wholeNumber = (least: number, most: number): Rule<number> => ({
  must: `a whole number from ${least} to ${most}`,
  holds: (value): value is number => Number.isInteger(value) && number(least, most).holds(value),
});

/** In seconds: tokens are taken for as long after they expire. @see RFC 7519 section 4.1.4: "no more than a few minutes" */
export const clockTolerance = number(0, 300);

/** In milliseconds, at most what `setTimeout` takes. */
export const timeout = number(1, 2 ** 31 - 1);

export const callback: Rule<object> = {
  must: "a function",
  holds: (value): value is object => typeof value === "function",
};

export const array: Rule<readonly unknown[]> = { must: "an array", holds: Array.isArray };

export const object: Rule<object> = {
  must: "an object",
  holds: (value): value is object => typeof value === "object" && value !== null && !Array.isArray(value),
};

export const withMethods = (...names: readonly string[]): Rule<object> => ({
  must: `an object with the methods ${names.join(", ")}`,
  holds: (value): value is object =>
    object.holds(value) && names.every((name) => callback.holds(Reflect.get(value, name))),
});

export const clock = withMethods("now", "setTimer");

/** The value of an option that may be left out: `null` and `undefined` mean not given. */
export type Optional<Value> = Value | null | undefined;

/** Options without `null`, which means not given. */
export type Given<Options> = { readonly [Name in keyof Options]: Exclude<Options[Name], null> };

/** Makes the rule of an option that must be given. */
export const required = <Value>(rule: Rule<Value>): Rule<Value> => ({ ...rule, isRequired: true });

/** For a value that is checked where it is used. */
export const anything: Rule = { must: "anything", holds: (_value): _value is unknown => true };

/**
 * Refuses unknown options, values that break their rule, and missing options. `null` and `undefined` mean not given.
 *
 * @param what how messages call an option
 * @returns the options that are given
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`; `ERR_PACKAGE_MISSING` where the runtime is too old
 */
export function checkOptions<Options>(options: Options, rules: Rules<Options>, what = "option"): Given<Options> {
  // All functions of the library that make something check their options.
  checkRuntime();
  if (options !== undefined && (!object.holds(options) || isPromise(options))) {
    throw invalidOption(`an object of ${what}s is expected${instead(options)}`);
  }
  const given: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options ?? {})) {
    if (!Object.hasOwn(rules, name)) {
      const known = Object.keys(rules);
      const meant = nearest(name, known);
      const hint = meant === undefined ? `; there is: ${known.join(", ")}` : `; did you mean "${meant}"?`;
      throw new ConfigError("ERR_OPTION_UNKNOWN", `there is no ${what} ${JSON.stringify(name)}${hint}`);
    }
    const rule: Rule = rules[name as keyof Options];
    if (value === null || value === undefined) continue;
    given[name] = value;
    checkArgument(`${what} "${name}"`, value, rule);
  }
  for (const name in rules) {
    const { isRequired, must }: Rule = rules[name];
    if (isRequired === true && given[name] === undefined)
      throw invalidOption(`${what} "${name}" is missing; give ${must}`);
  }
  return given as Given<Options>;
}

/** @param what what messages call it @throws ConfigError `ERR_OPTION_INVALID` */
export function checkArgument(what: string, value: unknown, rule: Rule): void {
  if (!rule.holds(value)) throw invalidOption(`${what} must be ${rule.must}${instead(value, rule)}`);
}

export const isPromise = (value: unknown): boolean => callback.holds((value as Partial<Promise<unknown>> | null)?.then);

/** What the value is instead: a number or its type. A string is not shown, because it may be a secret in the wrong place. */
function instead(value: unknown, { must, isText }: Pick<Rule, "must" | "isText"> = { must: "" }): string {
  if (isPromise(value)) return ", not a promise; await it";
  const type = Array.isArray(value) ? "array" : typeof value;
  if (isText === true && type === "string") return "";
  if (!must.includes(type)) return `, not ${kindOf(value)}`;
  return typeof value === "number" ? `, not ${value}` : "";
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  return Array.isArray(value) ? "an array" : `of type ${typeof value}`;
}
