import { notify } from "../base/async.ts";
import type { CacheMode } from "../base/cache-control.ts";
import { JwksdError } from "../base/errors.ts";

const maxReported = 100;

/**
 * Creates a function that determines the cache mode from the predicate. If the predicate throws or does not return a
 * boolean, rotation mode is used, because a short cache lifetime is always safe. Each distinct failure is reported
 * once.
 */
export function rotationMode(
  predicate: (() => boolean) | undefined,
  report: (warning: JwksdError) => void,
): () => CacheMode {
  if (predicate === undefined) return () => "long";
  const reported = new Set<string>();
  const failed = (problem: string, cause?: unknown): CacheMode => {
    if (!reported.has(problem) && reported.size < maxReported) {
      reported.add(problem);
      notify(
        report,
        new JwksdError(
          "ERR_PREDICATE",
          `jwksRotationActive ${problem}, so jwksd sends the Cache-Control header for rotation mode; fix the predicate`,
          {
            cause,
          },
        ),
      );
    }
    return "rotation";
  };
  return () => {
    let active: unknown;
    try {
      active = predicate();
    } catch (error) {
      return failed(`threw ${typeName(error)}`, error);
    }
    if (typeof active === "boolean") return active ? "rotation" : "long";
    // If an async predicate's rejection were not handled, it would end the process.
    (async () => active)().catch(() => {});
    return failed(`returned ${typeName(active)}, not a boolean`);
  };
}

/** Describes a value, even if reading it throws. */
function typeName(value: unknown): string {
  try {
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    if (value instanceof Promise) return "a promise";
  } catch {
    // A getter or a proxy may throw, and some objects cannot be converted to a string.
  }
  return typeof value;
}
