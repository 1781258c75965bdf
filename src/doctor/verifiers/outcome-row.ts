import type { Code } from "../codes.ts";

/** One form of a finding, and the outcome of each verifier that was run against it. */
export interface Row {
  readonly code: Code;
  /** Form of the finding; empty if its code has only one. */
  readonly form: string;
  /**
   * A letter for each verifier, in the order of the versions. `a`: refuses all tokens, even those signed with sound
   * keys. `i`: refuses only tokens signed with the key in question ("its tokens"). `.`: refuses no tokens. `-`: was not
   * tried, because it does not read the faulty part.
   */
  readonly outcomes: string;
}
