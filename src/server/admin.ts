import { writeReply } from "../http/node.ts";
import { methodNotAllowed } from "../http/respond.ts";
import type { Overload } from "./connections.ts";
import { type Handler, type RunningServer, startHttpServer } from "./http-server.ts";

/**
 * Serves `/livez` (the process runs) and `/readyz` (the public endpoint is served, and the other replicas rely on it) for orchestrators.
 *
 * @param notReady why it is not ready; `undefined` when it is
 */
export function startAdmin(
  address: { readonly host: string; readonly port: number },
  notReady: () => string | undefined,
  onOverload: (overload: Overload) => void,
): Promise<RunningServer> {
  const faults: Readonly<Record<string, () => string | undefined>> = { "/livez": () => undefined, "/readyz": notReady };
  const handler: Handler = (request, response) => {
    if (request.method !== "GET" && request.method !== "HEAD") return writeReply(response, methodNotAllowed.get);
    const faultOf = faults[request.url?.split("?")[0] ?? ""];
    const fault = faultOf?.();
    const text = faultOf === undefined ? "not found\n" : fault === undefined ? "ok\n" : `not ready: ${fault}\n`;
    response.writeHead(faultOf === undefined ? 404 : fault === undefined ? 200 : 503, {
      "Content-Type": "text/plain; charset=utf-8",
      "Content-Length": Buffer.byteLength(text),
      "Cache-Control": "no-store",
    });
    response.end(text);
  };
  return startHttpServer(address, () => handler, { onOverload });
}
