/**
 * How bad a finding is. `broken`: a conforming verifier fails, or a secret is public. `risk`: verifiers fail at the next rotation or under
 * load. `advice`: everything works, but could be better.
 */
export type Severity = "broken" | "risk" | "advice";

/** What jwksd knows about one kind of finding. */
export interface FindingKind {
  /** How bad the finding is. */
  readonly severity: Severity;
  /** What is wrong, in a few words. */
  readonly title: string;
  /** What goes wrong because of it. */
  readonly why: string;
  /** The rule that is broken, with its section. */
  readonly rule: string;
  /** What to do, in one sentence. */
  readonly remedy: string;
}

/** Beginning of rules in OpenID Connect Discovery. */
export const openidDiscovery = "OpenID Connect Discovery 1.0 section";
/** Beginning of rules in OpenID Federation. */
export const openidFederation = "OpenID Federation 1.0 section";
