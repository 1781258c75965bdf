import { notify } from "../base/async.ts";
import { JwksdError } from "../base/errors.ts";
import type { CacheMode } from "./respond.ts";

const maxReported = 100;

/**
 * Chooses the cache mode by the predicate. A predicate that throws or returns no boolean means rotation, because a short cache is safe.
 * Each distinct failure is reported once.
 */
export function rotationMode(
  predicate: (() => boolean) | undefined,
  report: (warning: JwksdError) => void,
): () => CacheMode {
  if (predicate === undefined) return () => "long";
  const reported = new Set<string>();
  const failed = (what: string, cause?: unknown): CacheMode => {
    if (!reported.has(what) && reported.size < maxReported) {
      reported.add(what);
      notify(
        report,
        new JwksdError("ERR_PREDICATE", `jwksRotationActive ${what}; the rotation Cache-Control is sent instead`, {
          cause,
        }),
      );
    }
    return "rotation";
  };
  return () => {
    let active: unknown;
    try {
      active = predicate();
    } catch (error) {
      return failed(`threw ${nameOf(error)}`, error);
    }
    if (typeof active === "boolean") return active ? "rotation" : "long";
    // An unhandled rejection of an async predicate would end the process.
    (async () => active)().catch(() => {});
    return failed(`returned ${nameOf(active)}, not a boolean`);
  };
}

/** Describes a value, even one that throws when it is read. */
function nameOf(value: unknown): string {
  try {
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    if (value instanceof Promise) return "a promise";
  } catch {
    // A getter, a proxy, or what has no text.
  }
  return typeof value;
}
