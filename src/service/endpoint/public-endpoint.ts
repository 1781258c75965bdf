import { type Metric, counter, createTally, sumMetrics } from "../../base/metrics.ts";
import { systemClock } from "../../base/clock.ts";
import { type Publisher, type Site, createPublisher } from "../../publish/publisher.ts";
import type { LogOverload } from "../listen/connections.ts";
import type { Handler } from "../listen/gate.ts";
import { startHttpServer } from "../listen/http-server.ts";
import { issuerOf, urlHost } from "../config/addresses.ts";
import type { JwkSet } from "../../publish/jwk-set.ts";

/** Options of the public endpoint. The default of the issuer is `http://HOST:PORT`, which only this machine can use. */
interface Options extends Site {
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  /** Whether other processes may listen on the port. */
  readonly reusePort: boolean;
  /** Whether rotation mode is on; evaluated for each request. */
  readonly isRotating: () => boolean;
}

/** The public endpoint of a service. */
export interface PublicEndpoint {
  readonly port: number;
  readonly issuer: string;
  readonly jwksUri: string;
  /** URL of the JWK Set on this machine. */
  readonly url: string;
  publish(this: void, next: JwkSet): void;
  /** Counts of responses since the start. */
  metrics(this: void): readonly Metric[];
  stop(this: void): Promise<void>;
}

/** Serves the public endpoint. */
export async function startPublicEndpoint(
  options: Options,
  first: JwkSet,
  onOverload: LogOverload,
): Promise<PublicEndpoint> {
  const mode = () => (options.isRotating() ? "rotation" : "long");
  const make = async (port: number): Promise<Publisher> => {
    const publisher = await createPublisher(
      { ...options, issuer: issuerOf(options, port) },
      { mode, clock: systemClock },
    );
    publisher.publish(first);
    return publisher;
  };
  // Made before listening as well, to find bad options before a connection is accepted.
  let publisher = await make(options.port);
  const handler = async (port: number): Promise<Handler> => {
    if (port !== options.port) publisher = await make(port);
    return publisher.node;
  };
  const { host, port, reusePort } = options;
  const refusals = createTally();
  const server = await startHttpServer({ host, port, reusePort }, handler, {
    onOverload,
    onRefusal: (status) => refusals.add(String(status)),
  });
  return {
    port: server.port,
    issuer: publisher.issuer,
    jwksUri: publisher.jwksUri,
    url: `http://${urlHost(host)}:${server.port}${new URL(publisher.jwksUri).pathname}`,
    publish: (next) => publisher.publish(next),
    metrics() {
      const values = refusals.values("code", { document: "none" });
      return sumMetrics([publisher.metrics(), [counter(["jwksd_responses_total", ""], values)]]);
    },
    stop: server.stop,
  };
}
