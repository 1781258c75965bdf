// A worker process of `jwksd serve --workers N`. It has public keys only.
import type { Overload } from "../listen/connections.ts";
import { type PublicEndpoint, startPublicEndpoint } from "./public-endpoint.ts";
import { processMetrics } from "../admin/exposition.ts";
import type { FromWorker, ToWorker } from "./workers.ts";

let endpoint: PublicEndpoint | undefined;

process.on("message", (message) => void handle(message as ToWorker));
// A terminal sends its signals to all processes, and the first process decides.
process.on("SIGINT", () => {});
process.on("SIGHUP", () => {});
process.on("SIGTERM", () => void stop());
process.on("disconnect", () => void stop());

async function handle(message: ToWorker): Promise<void> {
  if (message.kind === "stop") return stop();
  if (message.kind === "ping") return tell({ kind: "pong" });
  if (message.kind === "measure") {
    const metrics = (await endpoint?.metrics()) ?? [];
    // The first process says what is missing.
    const processes = await processMetrics().catch(() => []);
    return tell({ kind: "measured", metrics, processes });
  }
  if (message.kind === "update") {
    await endpoint?.update(message.keys);
    return tell({ kind: "updated", version: message.version });
  }
  try {
    const onOverload = (overload: Overload): void => tell({ kind: "overload", overload });
    endpoint = await startPublicEndpoint(message.options, message.keys, onOverload, { reusePort: true });
    tell({ kind: "listening", port: endpoint.port, jwksUri: endpoint.jwksUri });
  } catch (error) {
    tell({ kind: "failed", message: (error as Error).message });
    process.disconnect();
  }
}

async function stop(): Promise<void> {
  await endpoint?.stop();
  // eslint-disable-next-line unicorn/no-process-exit -- the channel to the first process would keep this one alive
  process.exit(0);
}

function tell(message: FromWorker): void {
  if (process.connected) process.send?.(message);
}
