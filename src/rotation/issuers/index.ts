/**
 * Many issuers in one process, with keys of their own.
 *
 * @module jwksd/issuers
 */

export { createIssuers } from "./issuers.ts";
export type { HostRequest, IssuersOptions, Issuers, DueStepsReport, ManagedIssuer } from "./types.ts";
