import type { Code } from "../codes.ts";

/** One defect, and the verifiers that failed at it when they were run, by name. */
export interface Row {
  readonly code: Code;
  /** Which form of the defect, where a code has several. */
  readonly form: string;
  /** They refuse each token, also those of good keys. */
  readonly all: readonly string[];
  /** They refuse the tokens of the key in question. */
  readonly its: readonly string[];
  /** They were not tried, as they do not read what is wrong. */
  readonly untried: readonly string[];
}
