/**
 * Finds problems with any provider's keys, based on observations. Does not use the network.
 *
 * @module jwksd/doctor
 */

export type { FailingVerifier } from "./verifiers/cited-failures.ts";
export { type Code, type Severity, codes } from "./codes.ts";
export { examine } from "./examine.ts";
export { type Finding } from "./finding.ts";
export {
  type CertificateFacts,
  type Exchange,
  type Failure,
  type SetFetch,
  type Observations,
  type Probes,
  type SeenToken,
} from "./observations.ts";
