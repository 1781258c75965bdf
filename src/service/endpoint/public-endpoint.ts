import { type Metric, counter, createTally, sumMetrics } from "../../base/metrics.ts";
import type { ServiceProvider } from "../../provider/provider.ts";
import { issuerOf, urlHost } from "../config/addresses.ts";
import type { LogOverload } from "../listen/connection-limit.ts";
import { startHttpServer } from "../listen/http-server.ts";

/** Options for the public endpoint. */
interface Options {
  /** Issuer of the documents. Default: `http://HOST:PORT`, which works only on this machine. */
  readonly issuer?: string | undefined;
  readonly host: string;
  /** Port to listen on; 0 selects a free port. */
  readonly port: number;
  /** Whether other processes may listen on the same port. */
  readonly reusePort: boolean;
}

/** A service's public endpoint. */
export interface PublicEndpoint {
  readonly port: number;
  readonly provider: ServiceProvider;
  /** URL of the JWK Set on this machine. */
  readonly url: string;
  /** Returns response counts since startup, including responses to refused requests. */
  metrics(this: void): readonly Metric[];
  stop(this: void): Promise<void>;
}

/**
 * Serves a provider's documents.
 *
 * @param provide creates the provider for an issuer; called twice if the issuer depends on the port
 */
export async function startPublicEndpoint(
  options: Options,
  provide: (issuer: string) => Promise<ServiceProvider>,
  onOverload: LogOverload,
): Promise<PublicEndpoint> {
  const { host, port, reusePort } = options;
  const createFor = async (port: number): Promise<ServiceProvider> => provide(issuerOf(options, port));
  // A provider is also created before listening, so that invalid options are found before a connection is accepted.
  let provider = await createFor(port);
  const refusals = createTally();
  const server = await startHttpServer(
    { host, port, reusePort },
    async (chosen) => {
      if (chosen !== port) provider = await createFor(chosen);
      return provider.node;
    },
    { onOverload, onRefusal: (status) => refusals.add(String(status)) },
  );
  return {
    port: server.port,
    provider,
    url: `http://${urlHost(host)}:${server.port}${new URL(provider.jwksUri).pathname}`,
    metrics() {
      const values = refusals.values("code", { document: "none" });
      return sumMetrics([provider.responseMetrics(), [counter(["jwksd_responses_total", ""], values)]]);
    },
    stop: server.stop,
  };
}
