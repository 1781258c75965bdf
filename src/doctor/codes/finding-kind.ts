/**
 * Severity of a finding. `broken`: a conforming verifier fails, or a secret is public. `risk`: verifiers fail at the
 * next rotation or under load. `advice`: everything works, but could be better.
 */
export type Severity = "broken" | "risk" | "advice";

/** One kind of finding. */
export interface FindingKind {
  readonly severity: Severity;
  /** The fault, in a few words. */
  readonly title: string;
  /** The consequences of the fault. */
  readonly why: string;
  /** The violated rule, with its section. */
  readonly rule: string;
  /** The remedy, in one or two sentences. */
  readonly remedy: string;
}

/** Prefix for the names of OpenID Connect Discovery rules. */
export const openidDiscovery = "OpenID Connect Discovery 1.0 section";
/** Prefix for the names of OpenID Federation rules. */
export const openidFederation = "OpenID Federation 1.0 section";
