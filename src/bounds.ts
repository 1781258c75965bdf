import { ConfigError } from "./errors.ts";

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
        `${name} must be a number of at least ${minimum}, not ${String(value)}`,
      );
    }
  }
}
