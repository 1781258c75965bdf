import { createServer } from "node:http";
import type { TestContext } from "node:test";
import { withoutPrivate } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { freePort } from "../support/service.ts";
import type { Setup } from "./guards.ts";
import { otherKeys, providerKeys } from "./requests.ts";

export interface TestProviders extends Setup {
  /** All requests that reached the providers, such as `GET /jwks`. */
  readonly requests: string[];
  /** Whether the providers respond with 500. */
  isBroken: boolean;
}

/** Starts two providers, and reserves the port of a third one that is down. */
export async function startProviders(t: Pick<TestContext, "after">): Promise<TestProviders> {
  const requests: string[] = [];
  const providers: TestProviders = { issuer: "", other: "", down: "", requests, isBroken: false };
  const start = async (keys: typeof providerKeys): Promise<string> => {
    const server = createServer(({ method, url }, response) => {
      requests.push(`${method} ${url}`);
      const documents: Readonly<Record<string, object>> = {
        "/.well-known/openid-configuration": { issuer, jwks_uri: `${issuer}/jwks` },
        "/.well-known/oauth-authorization-server/oauth": { issuer: `${issuer}/oauth`, jwks_uri: `${issuer}/jwks` },
        "/jwks": { keys: Object.entries(keys).map(([kid, { alg, jwk }]) => withoutPrivate({ ...jwk, kid, alg })) },
      };
      const document = documents[url ?? ""];
      const status = providers.isBroken ? 500 : document === undefined ? 404 : 200;
      response.writeHead(status, { "Cache-Control": "max-age=3600" });
      response.end(JSON.stringify(document ?? {}));
    });
    const issuer = `http://127.0.0.1:${await listening(t, server)}`;
    return issuer;
  };
  const issuer = await start(providerKeys);
  const other = await start(otherKeys);
  const down = `http://127.0.0.1:${await freePort()}`;
  Object.assign(providers, { issuer, other, down });
  return providers;
}
