/**
 * Finds problems with any provider's keys, based on observations. Does not use the network.
 *
 * @module jwksd/doctor
 */

export { type Code, type Severity, codes } from "./codes.ts";
export { examine } from "./examine.ts";
export { type Finding } from "./finding.ts";
export { type HttpExchange, type Observations } from "./observations.ts";
