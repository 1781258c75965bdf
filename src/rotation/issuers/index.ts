/**
 * Many issuers in one process, each with its own keys.
 *
 * @module jwksd/issuers
 */

export { createIssuers } from "./issuers.ts";
export type { IssuerStatus } from "../explain/issuer-status.ts";
export type {
  HostRequest,
  IssuersOptions,
  Issuers,
  DueStepsReport,
  ListIssuersOptions,
  ManagedIssuer,
} from "./types.ts";
