import { type Metric, counter, createTally, sumMetrics } from "../../base/metrics.ts";
import { type OpenSite, providerAt } from "../copies/documents.ts";
import type { Overload } from "../listen/connections.ts";
import type { Handler } from "../listen/gate.ts";
import { startHttpServer } from "../listen/http-server.ts";
import { issuerOf } from "../config/issuer.ts";
import type { PublicKeys } from "./public-keys.ts";

/** Options of the public endpoint. The default of the issuer is `http://HOST:PORT`, which only this machine can use. */
export interface PublicEndpointOptions extends OpenSite {
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  /** Whether other processes may listen on the port. */
  readonly reusePort: boolean;
  readonly rotationMode: boolean;
}

/** The public endpoint of a service. */
export interface PublicEndpoint {
  readonly port: number;
  readonly jwksUri: string;
  update(this: void, keys: PublicKeys): Promise<void>;
  /** Counts of responses since the start. */
  metrics(this: void): readonly Metric[];
  stop(this: void): Promise<void>;
}

/** Serves the public endpoint. */
export async function startPublicEndpoint(
  options: PublicEndpointOptions,
  keys: PublicKeys,
  onOverload: (overload: Overload) => void,
): Promise<PublicEndpoint> {
  let { isRotating } = keys;
  const make = (port: number) => {
    const site = { ...options, issuer: issuerOf(options, port) };
    return providerAt(site, keys, () => isRotating || options.rotationMode);
  };
  // Made before listening as well, to find bad options before a connection is accepted.
  let provider = await make(options.port);
  const handler = async (port: number): Promise<Handler> => {
    if (port !== options.port) provider = await make(port);
    return provider.node;
  };
  const { host, port, reusePort } = options;
  const refusals = createTally();
  const server = await startHttpServer({ host, port, reusePort }, handler, {
    onOverload,
    onRefusal: (status) => refusals.add(String(status)),
  });
  return {
    port: server.port,
    jwksUri: provider.jwksUri,
    async update(next) {
      // The short cache begins before the new document is out, and ends after it.
      isRotating ||= next.isRotating;
      const { keyset, encryptionKeyset } = next;
      await provider.update({ keyset, encryptionKeyset });
      isRotating = next.isRotating;
    },
    metrics() {
      const values = refusals.values("code", { document: "none" });
      return sumMetrics([provider.metrics(), [counter(["jwksd_responses_total", ""], values)]]);
    },
    stop: server.stop,
  };
}
