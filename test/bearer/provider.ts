import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { withoutPrivate } from "../support/keys.ts";
import type { Setup } from "./guards.ts";
import { otherKeys, providerKeys } from "./requests.ts";

export interface TestProviders extends Setup {
  /** Every request that reached them, such as `GET /jwks`. */
  readonly requests: string[];
  /** Whether they answer 500. */
  isBroken: boolean;
}

/** Two providers that answer, and one that does not. */
export async function startProviders(t: Pick<TestContext, "after">): Promise<TestProviders> {
  const requests: string[] = [];
  const providers: TestProviders = { issuer: "", other: "", down: "", requests, isBroken: false };
  const start = async (keys: typeof providerKeys): Promise<string> => {
    const server = createServer(({ method, url }, response) => {
      requests.push(`${method} ${url}`);
      const documents: Readonly<Record<string, object>> = {
        "/.well-known/openid-configuration": { issuer, jwks_uri: `${issuer}/jwks` },
        "/jwks": { keys: Object.entries(keys).map(([kid, { alg, jwk }]) => withoutPrivate({ ...jwk, kid, alg })) },
      };
      const document = documents[url ?? ""];
      const status = providers.isBroken ? 500 : document === undefined ? 404 : 200;
      response.writeHead(status, { "Cache-Control": "max-age=3600" });
      response.end(JSON.stringify(document ?? {}));
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    t.after(() => server.close().closeAllConnections());
    const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return issuer;
  };
  const issuer = await start(providerKeys);
  const other = await start(otherKeys);
  const gone = createServer();
  await once(gone.listen(0, "127.0.0.1"), "listening");
  const down = `http://127.0.0.1:${(gone.address() as AddressInfo).port}`;
  gone.close();
  Object.assign(providers, { issuer, other, down });
  return providers;
}
