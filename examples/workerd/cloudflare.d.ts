// The part of the Workers module that the examples and tests use.
declare module "cloudflare:workers" {
  import type { D1Binding } from "jwksd/store/d1";
  import type { DurableObjectNamespace } from "jwksd/store/durable-object";

  interface Namespace {
    get<Value>(key: string, type: "json"): Promise<Value | null>;
    put(key: string, value: string): Promise<void>;
  }
  export const env: {
    readonly KEYS: Namespace;
    readonly DB: D1Binding;
    readonly OBJECTS: DurableObjectNamespace;
    readonly WRAPPING_KEYS: string;
    readonly OPERATOR_SECRET?: string;
    /** `wrangler types` types each variable by its value. */
    readonly FIRST_START: "no";
  };
  export function waitUntil(promise: Promise<unknown>): void;
}
