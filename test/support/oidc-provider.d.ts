// oidc-provider has no types of its own; this is the part that is used here.
declare module "oidc-provider" {
  import type { KeyObject } from "node:crypto";
  import type { RequestListener } from "node:http";

  export class Provider {
    constructor(issuer: string, configuration: object);
    callback(): RequestListener;
    on(event: string, listener: (...values: readonly unknown[]) => void): this;
  }

  export class ExternalSigningKey {
    kid?: string;
    alg?: string;
    keyObject(): KeyObject;
    sign(data: Uint8Array): Promise<Uint8Array>;
  }
}
