import { ConfigError } from "./errors.ts";

/** The type that each option must have; also the list of the options that there are. */
export type OptionTypes<Options> = {
  readonly [Name in keyof Required<Options>]:
    | "string"
    | "number"
    | "object"
    | "array"
    | "function"
    | "boolean"
    | "unknown";
};

/**
 * Refuses what is no options object, and in one the names that do not exist and the values of another type.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function checkOptionTypes<Options>(options: Options, types: OptionTypes<Options>): void {
  if (typeof options !== "object" || options === null) {
    throw new ConfigError(
      "ERR_OPTION_INVALID",
      `an options object is expected, not ${options === null ? "null" : `one of type ${typeof options}`}`,
    );
  }
  checkNames(options, Object.keys(types), "option");
  for (const [name, value] of Object.entries(options)) checkType(name, value, types[name as keyof Options]);
}

/** Refuses an object that lacks one of its methods; `null` and `undefined` mean not given. */
export function checkMethods(name: string, object: object | null | undefined, methods: readonly string[]): void {
  if (object === null || object === undefined) return;
  const missing = methods.find((method) => typeof (object as Record<string, unknown>)[method] !== "function");
  if (missing !== undefined) throw new ConfigError("ERR_OPTION_INVALID", `option "${name}" has no method "${missing}"`);
}

/** Refuses members of an options object that do not exist. */
export function checkNames(object: object, known: readonly string[], what: string): void {
  for (const name of Object.keys(object)) {
    if (!known.includes(name))
      throw new ConfigError("ERR_OPTION_UNKNOWN", `there is no ${what} "${name}"; there is: ${known.join(", ")}`);
  }
}

/** Refuses a value of another type; `null` and `undefined` mean not given. */
export function checkType(name: string, value: unknown, type: string): void {
  const given = Array.isArray(value) ? "array" : typeof value;
  if (value !== null && value !== undefined && type !== "unknown" && given !== type) {
    throw new ConfigError("ERR_OPTION_INVALID", `option "${name}" must be of type ${type}, not ${given}`);
  }
}
