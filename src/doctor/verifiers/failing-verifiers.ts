import type { Code } from "../codes.ts";
import { type FailingVerifier, cited } from "./cited-failures.ts";
import { rows, versions } from "./test-outcomes.ts";

/** Returns the verifiers that fail because of a code. The ones that were run are first, followed by the cited ones. */
export function breaksOf(code: Code): readonly FailingVerifier[] {
  const observed = runsOf(code).flatMap(({ client, version, outcomes }): FailingVerifier[] => {
    const failed = outcomes.filter((outcome) => outcome !== ".");
    if (failed.length === 0) return [];
    const fails = failed.includes("i") ? "its tokens" : "every token";
    return [{ client, version, fails, ...(failed.length < outcomes.length && { inSomeForms: true }) }];
  });
  return [...observed, ...(cited[code] ?? [])];
}

/**
 * Groups verifiers by the tokens that fail in them. Each group has the label that reports print in front of its names.
 */
export function byFailingTokens(breaks: readonly FailingVerifier[]) {
  const groups = [
    { label: "All tokens fail in", fails: "every token" },
    { label: "Tokens signed with this key fail in", fails: "its tokens" },
  ] as const;
  return groups
    .map(({ label, fails }) => ({ label, verifiers: breaks.filter((verifier) => verifier.fails === fails) }))
    .filter(({ verifiers }) => verifiers.length > 0);
}

/**
 * Returns a verifier's name with its version. A verifier that consists of two packages has two versions, in the same
 * order.
 */
export function nameWithVersion({ client, version }: FailingVerifier): string {
  const versions = version.split(" + ");
  return client
    .split(" + ")
    .map((name, index) => `${name} ${versions[index]}`)
    .join(" with ");
}

/** Returns the number of verifiers that were run against a code. */
export function triedOf(code: Code): number {
  return runsOf(code).filter(({ outcomes }) => outcomes.length > 0).length;
}

/** Returns each verifier's outcomes for the forms of a code against which it was run. */
function runsOf(code: Code) {
  const own = rows.filter((row) => row.code === code);
  return Object.entries(versions).map(([client, version], column) => ({
    client,
    version,
    outcomes: own.map(({ outcomes }) => outcomes[column]).filter((outcome) => outcome !== "-"),
  }));
}
