import { InvalidArgumentError } from "commander";

/** Creates a parser for whole numbers that match a pattern. */
export const wholeNumber =
  (form: RegExp, message: string) =>
  (text: string): number => {
    if (!form.test(text)) throw new InvalidArgumentError(message);
    return Number(text);
  };

/** Parses a count. */
export const count = wholeNumber(/^[1-9]\d{0,8}$/, "Must be a whole number, at least 1.");

/** Parses the value of `--wait`. */
export const waitSeconds = wholeNumber(/^\d{1,6}$/, "Must be a whole number of seconds, at most 999999.");

/** Collects the values of a repeatable option. */
export const collect = (value: string, before: readonly string[] = []): string[] => [...before, value];
