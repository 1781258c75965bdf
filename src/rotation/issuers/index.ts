/**
 * Many issuers in one process, each with its own keys.
 *
 * @module jwksd/issuers
 */

export { createIssuers } from "./issuers.ts";
export type { HostRequest, IssuersOptions, Issuers, DueStepsReport, ManagedIssuer } from "./types.ts";
