import { InvalidArgumentError } from "commander";

/** A parser of whole numbers that have this form. */
export const wholeNumber =
  (form: RegExp, message: string) =>
  (text: string): number => {
    if (!form.test(text)) throw new InvalidArgumentError(message);
    return Number(text);
  };

export const count = wholeNumber(/^[1-9]\d{0,8}$/, "Not a whole number of at least 1.");

/** The value of `--wait`. */
export const waitSeconds = wholeNumber(/^\d{1,6}$/, "Not a whole number of seconds, 999999 at most.");

/** Gathers the values of an option that may be given several times. */
export const collect = (value: string, before: readonly string[] = []): string[] => [...before, value];
