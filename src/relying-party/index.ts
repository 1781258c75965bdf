export { type ErrorCode, FetchError, JwksdError, TokenError } from "../errors.ts";
export type { SkippedKey } from "../jwk/verification-keys.ts";
export {
  type GetKey,
  type KeySetEvent,
  type RemoteKeySet,
  type RemoteKeySetOptions,
  createRemoteKeySet,
} from "./remote-key-set.ts";
export type { Fetch } from "./fetch-json.ts";
export type { KeySetState } from "./stored.ts";
