import { ConfigError } from "./errors.ts";

/** A longer timer of the platform fires at once. */
const longestTimerMs = 2 ** 31 - 1;

/**
 * Refuses numbers that are not finite or below a minimum.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function checkBounds(values: Readonly<Record<string, number>>, minimum: number): void {
  for (const [name, value] of Object.entries(values)) {
    if (!Number.isFinite(value) || value < minimum) {
      throw new ConfigError(
        "ERR_OPTION_INVALID",
        `${name} must be a number of at least ${minimum}, not ${typeof value === "number" ? value : `of type ${typeof value}`}`,
      );
    }
  }
}

/**
 * Refuses durations that no timer has: below a millisecond, or longer than the platform's.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function checkTimeouts(values: Readonly<Record<string, number>>): void {
  checkBounds(values, 1);
  for (const [name, value] of Object.entries(values)) {
    if (value > longestTimerMs) {
      throw new ConfigError("ERR_OPTION_INVALID", `${name} must be at most ${longestTimerMs}, not ${value}`);
    }
  }
}
