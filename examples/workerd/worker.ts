// Run: npm run build &&
//   npx bun build examples/workerd/worker.ts --outdir examples/workerd/dist &&
//   npx workerd serve --control-fd=1 --socket-addr http=*:${PORT:-3000} examples/workerd/config.capnp

import { type Provider, createProvider, localSigner } from "jwksd";

interface Env {
  readonly ISSUER: string | null;
}

let provider: Promise<Provider> | undefined;

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    // Created on the first request, which brings the bindings, and kept for the next ones.
    provider ??= startProvider(env.ISSUER ?? "http://localhost:3000");
    return (await provider).fetch(request);
  },
};

async function startProvider(issuer: string): Promise<Provider> {
  // A new key on each start, only for this example; read yours from a secret: localSigner(env.SIGNING_KEY).
  const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
  return createProvider({ issuer, keyset: [{ kid: "2026-11", signer: await localSigner(key) }] });
}
