// The part of the module of Workers that the examples and tests use.
declare module "cloudflare:workers" {
  interface Namespace {
    get<Value>(key: string, type: "json"): Promise<Value | null>;
    put(key: string, value: string): Promise<void>;
  }
  export const env: {
    readonly KEYS: Namespace;
    readonly DB: import("jwksd/store/d1").D1Binding;
    readonly OBJECTS: import("jwksd/store/durable-object").DurableObjectNamespace;
    readonly WRAPPING_KEYS: string;
    readonly FIRST_START?: string;
  };
  export function waitUntil(promise: Promise<unknown>): void;
}
