import type { IncomingMessage } from "node:http";
import { ConfigError, codeOf } from "../../base/errors.ts";
import { refusalOf } from "../../base/local-request-check.ts";
import type { Metric } from "../../base/metrics.ts";
import { writeReply } from "../../publish/node-response.ts";
import { methodNotAllowed, problem, withoutBodyOnHead } from "../../publish/respond.ts";
import { urlHost } from "../config/addresses.ts";
import type { Logger } from "../config/logger.ts";
import { type RunningServer, startHttpServer } from "../listen/http-server.ts";
import type { Handler } from "../listen/pause-requests.ts";
import { expose } from "./prometheus-text.ts";

/** A response from the admin address. It is never cached. */
export interface AdminReply {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Handles GET and HEAD for one path. */
export type AdminPage = (request: IncomingMessage) => AdminReply | Promise<AdminReply>;

const plainText = (status: number, text: string): AdminReply => ({
  status,
  contentType: "text/plain; charset=utf-8",
  text: `${text}\n`,
});

/**
 * Creates `/readyz` or `/livez`.
 *
 * @param notReady returns why the service is not ready, or `undefined` if it is ready
 */
export function healthPage(notReady: () => string | undefined): AdminPage {
  return () => {
    const fault = notReady();
    return fault === undefined ? plainText(200, "ok") : plainText(503, `not ready: ${fault}`);
  };
}

/**
 * Creates `/metrics`. If prom-client is not installed, the page responds with 501 and installation instructions.
 *
 * @param metrics collects the metrics for each scrape
 */
export function metricsPage(metrics: () => Promise<readonly Metric[]>): AdminPage {
  return async ({ headers }) => {
    try {
      const { contentType, text } = await expose(await metrics(), headers.accept);
      return { status: 200, contentType, text };
    } catch (error) {
      if (!(error instanceof ConfigError) || error.code !== "ERR_PACKAGE_MISSING") throw error;
      return plainText(
        501,
        `metrics are unavailable: ${error.message} in the folder where jwksd is installed, then restart jwksd`,
      );
    }
  };
}

const refusals = {
  421: problem(
    421,
    "Misdirected Request",
    "The admin address accepts only requests that are addressed to localhost or to the admin address itself. To reach it from another machine, forward a port: ssh -L 9901:127.0.0.1:9901 HOST",
  ).get,
  403: problem(403, "Forbidden", "The admin address does not accept requests from other websites.").get,
};

const notFound: AdminPage = () => plainText(404, "not found");

const failed = problem(500, "Internal Server Error", "This page cannot be shown; see jwksd's log for the cause.");

/** A running server for the admin address. */
export interface RunningAdmin extends RunningServer {
  readonly url: string;
}

/**
 * Serves those requests to the admin address that {@link refusalOf} does not reject.
 *
 * @param pages read-only pages by path
 */
export async function startAdmin(
  address: { readonly host: string; readonly port: number },
  pages: Readonly<Record<string, AdminPage>>,
  log: Logger,
): Promise<RunningAdmin> {
  const admin = `${address.host}:${address.port}`;
  const handler: Handler = (request, response) => {
    const { headers, method = "", socket, url } = request;
    const path = url?.split("?")[0] ?? "";
    const refusal = refusalOf({ path, headers, localAddress: socket.localAddress }, address.host);
    if (refusal !== undefined) return writeReply(response, refusals[refusal]);
    if (method !== "GET" && method !== "HEAD") return writeReply(response, methodNotAllowed.get);
    const page = (Object.hasOwn(pages, path) ? pages[path] : undefined) ?? notFound;
    const respond = async (): Promise<void> => {
      const { status, contentType, text, headers } = await page(request);
      response.writeHead(status, {
        "Content-Type": contentType,
        "Content-Length": Buffer.byteLength(text),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        ...headers,
      });
      response.end(text);
    };
    // A page can fail at any time; for example, a package that its first request loads may have been removed since
    // jwksd started.
    respond().catch((error: unknown) => {
      log.error({ admin, path, code: codeOf(error) }, `failed to render a page: ${(error as Error).message}`);
      writeReply(response, withoutBodyOnHead(failed, method));
    });
  };
  const server = await startHttpServer(address, () => handler, {
    onOverload: (lost, message) => log.warn({ admin, ...lost }, message),
  });
  return { ...server, url: `http://${urlHost(address.host)}:${server.port}` };
}
