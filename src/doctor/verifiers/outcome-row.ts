import type { Code } from "../codes.ts";

/** One form of a finding, and the outcome of each verifier that was run against it. */
export interface Row {
  readonly code: Code;
  /** Form of the finding. Empty if its code has only one form. */
  readonly form: string;
  /**
   * One character for each verifier, in the order in which the versions are listed. `a`: it rejects all tokens, even
   * those signed with valid keys. `i`: it rejects only tokens signed with the key in question ("its tokens"). `.`: it
   * does not reject any tokens. `-`: it was not tried, because it does not read the faulty part.
   */
  readonly outcomes: string;
}
