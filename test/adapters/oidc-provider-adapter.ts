import { Provider } from "oidc-provider";
import { localSigner } from "../../src/index.ts";
import type { OidcKeys } from "../../src/provider/adapters/oidc-keys.ts";
import { createRotatingOidcProvider } from "../../src/provider/adapters/oidc-provider.ts";
import { type Adapter, type Setup, type WireTarget, defaultIssuer, wireServer } from "../support/adapters.ts";
import { withoutPrivate } from "../support/keys.ts";

/** Returns keys that never change. */
export async function keysOf({
  keys,
  encryptionKeys = [],
  issuer = defaultIssuer,
  rotation = false,
}: Setup): Promise<OidcKeys> {
  const keyset = await Promise.all(keys.map(async (key) => ({ kid: key.kid, signer: await localSigner(key) })));
  const encryptionKeyset = encryptionKeys.map((key) => ({ kid: key.kid, publicKey: withoutPrivate(key) }));
  return {
    issuer,
    keysets: { keyset, encryptionKeyset },
    isRotating: rotation,
    maxTokenLifetimeSeconds: 3600,
    permit: () => () => {},
    endOf: () => undefined,
    subscribe: (subscriber) => subscriber.update({ keyset, encryptionKeyset }, { isRotating: rotation }),
    records: [],
    exportDecryptionKey: () => Promise.reject(new Error("oidc-provider decrypts nothing in these tests")),
  };
}

/** Reports whether this adapter supports a setup: it has no mount prefix except the issuer's path, its set is public, and oidc-provider serves discovery. */
const takes = ({ mountPrefix, cors }: Setup, target: string): boolean =>
  mountPrefix === undefined && cors !== false && !target.includes(".well-known");

/** oidc-provider with jwksd's keys. For paths without a route, an application responds as the endpoint specification requires. */
export const oidcAdapter: Adapter<WireTarget> = {
  name: "jwksd/oidc-provider",
  takes,
  async start(setup) {
    const keys = await keysOf(setup);
    const configuration = { adapter: () => ({}), routes: { jwks: setup.jwksPath ?? "/jwks" } };
    const { handler } = await createRotatingOidcProvider(keys, configuration, (configuration) => {
      const provider = new Provider(keys.issuer, configuration);
      return provider.use(async (ctx, next) => {
        await next();
        if (ctx.status !== 404 || ctx.respond === false) return;
        ctx.type = "application/problem+json";
        ctx.body = '{"title":"Not Found","status":404}';
        ctx.status = 404;
        ctx.set("Cache-Control", "no-store");
        ctx.set("X-Content-Type-Options", "nosniff");
      });
    });
    return wireServer(handler);
  },
};
