import { type DurableObjectNamespace, durableObjectStore } from "jwksd/store/durable-object";

export { KeysObject } from "jwksd/store/durable-object";

export const storeOf = (env: { KEYS: DurableObjectNamespace }, issuer: string) =>
  durableObjectStore(env.KEYS, { issuer });
