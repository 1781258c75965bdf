import type { Code } from "../codes.ts";
import { type FailingVerifier, cited } from "./cited-failures.ts";
import { rows, versions } from "./test-outcomes.ts";

/**
 * Returns the verifiers that fail because of a finding with this code: first those that were run, then those that are
 * only cited.
 */
export function breaksOf(code: Code): readonly FailingVerifier[] {
  const observed = runsOf(code).flatMap(({ client, version, outcomes }): FailingVerifier[] => {
    const failed = outcomes.filter((outcome) => outcome !== ".");
    if (failed.length === 0) return [];
    const fails = failed.includes("i") ? "its tokens" : "every token";
    return [{ client, version, fails, ...(failed.length < outcomes.length && { inSomeForms: true }) }];
  });
  return [...observed, ...(cited[code] ?? [])];
}

/** Returns the number of verifiers that were run against findings with this code. */
export function triedOf(code: Code): number {
  return runsOf(code).filter(({ outcomes }) => outcomes.length > 0).length;
}

/**
 * Returns each verifier's outcomes for the forms of a finding with this code, limited to the forms that the verifier
 * was run against.
 */
function runsOf(code: Code) {
  const own = rows.filter((row) => row.code === code);
  return Object.entries(versions).map(([client, version], column) => ({
    client,
    version,
    outcomes: own.map(({ outcomes }) => outcomes[column]).filter((outcome) => outcome !== "-"),
  }));
}
