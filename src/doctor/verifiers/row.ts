import type { Code } from "../codes.ts";

/** One form of a finding, and what became of each verifier that was run against it. */
export interface Row {
  readonly code: Code;
  /** Which form of the finding, where its code has several. */
  readonly form: string;
  /**
   * A letter for each verifier, in the order of the versions: `a` refuses all tokens, also those of good keys; `i` refuses the tokens of the
   * key in question, its tokens; `.` fails at none; `-` was not tried, as it does not read what is wrong.
   */
  readonly outcomes: string;
}
