import { writeReply } from "../http/node.ts";
import { methodNotAllowed } from "../http/respond.ts";
import type { Overload } from "./connections.ts";
import { type Handler, type RunningServer, startHttpServer } from "./http-server.ts";

/** Serves `/livez` (the process runs) and `/readyz` (the public endpoint is served) for orchestrators. */
export function startAdmin(
  address: { readonly host: string; readonly port: number },
  isReady: () => boolean,
  onOverload: (overload: Overload) => void,
): Promise<RunningServer> {
  const statuses: Readonly<Record<string, () => number>> = {
    "/livez": () => 200,
    "/readyz": () => (isReady() ? 200 : 503),
  };
  const handler: Handler = (request, response) => {
    if (request.method !== "GET" && request.method !== "HEAD") return writeReply(response, methodNotAllowed.get);
    const status = statuses[request.url?.split("?")[0] ?? ""]?.() ?? 404;
    const text = `${{ 200: "ok", 503: "not ready", 404: "not found" }[status]}\n`;
    response.writeHead(status, {
      "Content-Type": "text/plain",
      "Content-Length": text.length,
      "Cache-Control": "no-store",
    });
    response.end(text);
  };
  return startHttpServer(address, () => handler, { onOverload });
}
