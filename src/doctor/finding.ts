import { type Code, type Severity, allCodes, codes, ruleUrl } from "./codes.ts";
import type { FailingVerifier } from "./verifiers/cited-failures.ts";
import { breaksOf, triedOf } from "./verifiers/failing-verifiers.ts";

/** URL of the page that has a paragraph about each code. */
const page = "https://github.com/jwksd/jwksd/blob/main/docs/doctor.md";

/** One problem, in one or more places. `seen` may quote the issuer, so escape it before you print it. */
export interface Finding {
  /** Stable code. */
  readonly code: Code;
  /** `broken`: verifiers fail. `risk`: they may fail. `advice`: they work, but not well. */
  readonly severity: Severity;
  /** The fault, in a few words. */
  readonly title: string;
  /** Descriptions of the first 10 places, without private key parameters or parts of bodies. */
  readonly seen: readonly string[];
  /** Number of places. */
  readonly count: number;
  /** The consequences of the fault. */
  readonly effect: string;
  /** The violated rule, with its section. */
  readonly rule: string;
  /** URL of the rule, if it is public. */
  readonly ruleUrl: string | undefined;
  /** Verifiers known to fail, based on a test run, a public issue or a line of source. Others may fail too. */
  readonly breaks: readonly FailingVerifier[];
  /** Number of verifiers that were run against this finding. 0 if running them could not show anything. */
  readonly tried: number;
  /** The remedy, in one or two sentences. */
  readonly remedy: string;
  /** URL of the paragraph about the code. */
  readonly link: string;
}

/** One observation made by a check. */
export interface Note {
  readonly code: Code;
  readonly seen: string;
}

export const note = (code: Code, seen: string): Note => ({ code, seen });

/** Severities, worst first. */
export const severities: readonly Severity[] = ["broken", "risk", "advice"];
const maxSeen = 10;

/**
 * Groups notes into findings, one for each code. The worst come first; findings of the same severity are in the order
 * of the table.
 */
export function findings(notes: readonly Note[]): Finding[] {
  const byCode = Map.groupBy(notes, ({ code }) => code);
  return severities.flatMap((severity) =>
    allCodes
      .filter((code) => codes[code].severity === severity && byCode.has(code))
      .map((code) => finding(code, byCode.get(code)?.map(({ seen }) => seen) ?? [])),
  );
}

function finding(code: Code, seen: readonly string[]): Finding {
  const { severity, title, why, rule, remedy } = codes[code];
  return {
    code,
    severity,
    title,
    seen: seen.slice(0, maxSeen),
    count: seen.length,
    effect: why,
    rule,
    ruleUrl: ruleUrl(rule),
    breaks: breaksOf(code),
    tried: triedOf(code),
    remedy,
    link: `${page}#${code.toLowerCase()}`,
  };
}

/** Reports whether one severity is at least as bad as another. */
export const atLeast = (one: Severity, other: Severity): boolean =>
  severities.indexOf(one) <= severities.indexOf(other);
