// oidc-provider has no types, so this declares the part that jwksd and its tests use.
declare module "oidc-provider" {
  import type { KeyObject } from "node:crypto";
  import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";

  export interface Context {
    status: number;
    type: string;
    body: unknown;
    /** Whether Koa writes the response. */
    respond?: boolean;
    readonly req: IncomingMessage;
    readonly res: ServerResponse;
    readonly oidc?: { readonly route: string; readonly client?: Client };
    set(name: string, value: string): void;
  }

  export interface Client {
    readonly clientId: string;
    readonly [member: string]: unknown;
  }

  export class Provider {
    /** Context of the current request. */
    static readonly ctx: Context | undefined;
    constructor(issuer: string, configuration: object);
    readonly issuer: string;
    proxy: boolean;
    callback(): RequestListener;
    use(middleware: (ctx: Context, next: () => Promise<void>) => Promise<void>): this;
    on(event: string, listener: (...values: readonly unknown[]) => void): this;
  }

  export class ExternalSigningKey {
    kid: string;
    alg: string;
    keyObject(): KeyObject;
    sign(data: Uint8Array): Promise<Uint8Array>;
  }
}
