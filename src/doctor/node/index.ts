/**
 * Makes observations for the doctor, over the network or from a file.
 *
 * @module jwksd/doctor/node
 */

export { type TimelineEvent } from "../set-changes.ts";
export { observeIssuer, observationsFromBody } from "./observe.ts";
export type { ObserveOptions } from "./request.ts";
export { type WatchOptions, watchJwkSet } from "./watch.ts";
