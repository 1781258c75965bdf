/**
 * Finds what is wrong with any provider's keys: observations in, findings out. It fetches nothing.
 *
 * @module jwksd/doctor
 */

export type { Break } from "./verifiers/cited.ts";
export { type Code, type Severity, codes } from "./codes.ts";
export { examine } from "./examine.ts";
export { type Finding } from "./finding.ts";
export {
  type CertificateFacts,
  type Exchange,
  type Failure,
  type Look,
  type Observations,
  type Probes,
  type SeenToken,
} from "./observations.ts";
