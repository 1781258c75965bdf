import { notify } from "../base/async.ts";
import type { CacheMode } from "../base/cache-control.ts";
import { JwksdError } from "../base/errors.ts";

const maxReported = 100;

/**
 * Creates a function that chooses the cache mode according to the predicate. If the predicate throws or does not return
 * a boolean, chooses rotation mode, because a short cache lifetime is the safe choice. Each distinct failure is
 * reported once.
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
          `jwksRotationActive ${problem}, so the rotation mode's Cache-Control is sent; fix the predicate`,
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
    // An unhandled rejection of an async predicate would end the process.
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
    // A getter or a proxy may throw, or an object may have no string form.
  }
  return typeof value;
}
