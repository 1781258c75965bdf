/**
 * A provider's cached key set, for verifying its tokens.
 *
 * @module jwksd/relying-party
 */

export { type JwksdErrorCode, FetchError, JwksdError, TokenError } from "../../base/errors.ts";
export type { Metric } from "../../base/metrics.ts";
export type { SkippedKey } from "../../keys/jwk/verification-keys.ts";
export type { KeyHeader } from "./find-key.ts";
export { type RemoteKeySet, createRemoteKeySet } from "./remote-key-set.ts";
export type { KeySetEvent, RemoteKeySetOptions } from "./options.ts";
export type { Fetch } from "../http-cache/fetch-json.ts";
export type { KeySetState } from "./cached-key-set.ts";
