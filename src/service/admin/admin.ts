import type { IncomingMessage } from "node:http";
import { ConfigError, codeOf } from "../../base/errors.ts";
import { refusalOf } from "../../base/local-requests.ts";
import type { Metric } from "../../base/metrics.ts";
import { writeReply } from "../../publish/node.ts";
import { methodNotAllowed, problem, withoutBodyOnHead } from "../../publish/respond.ts";
import type { Logger } from "../config/log.ts";
import type { Handler } from "../listen/gate.ts";
import { type RunningServer, startHttpServer } from "../listen/http-server.ts";
import { expose } from "./exposition.ts";

/** A reply of the admin address, which no cache keeps. */
export interface AdminReply {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Answers a GET or HEAD of one path. */
export type AdminPage = (request: IncomingMessage) => AdminReply | Promise<AdminReply>;

const plainText = (status: number, text: string): AdminReply => ({
  status,
  contentType: "text/plain; charset=utf-8",
  text: `${text}\n`,
});

/** `/readyz`, and `/livez` where nothing is ever wrong. @param faultOf why it is not; `undefined` when it is */
export function healthPage(faultOf: () => string | undefined): AdminPage {
  return () => {
    const fault = faultOf();
    return fault === undefined ? plainText(200, "ok") : plainText(503, `not ready: ${fault}`);
  };
}

/** Makes `/metrics`. Without prom-client it returns 501 and says how to install it. @param metrics collects the metrics of each scrape */
export function metricsPage(metrics: () => Promise<readonly Metric[]>): AdminPage {
  return async ({ headers }) => {
    try {
      const { contentType, text } = await expose(await metrics(), headers.accept);
      return { status: 200, contentType, text };
    } catch (error) {
      if (!(error instanceof ConfigError) || error.code !== "ERR_PACKAGE_MISSING") throw error;
      return plainText(501, `no metrics: ${error.message}, where jwksd is installed, and restart it`);
    }
  };
}

const refusals = {
  421: problem(
    421,
    "Misdirected Request",
    "The admin address answers to localhost and to the address on which it listens, and to no other name. From another machine, forward a port: ssh -L 9901:127.0.0.1:9901 HOST",
  ).get,
  403: problem(403, "Forbidden", "The admin address answers no requests that other web sites make.").get,
};

const notFound: AdminPage = () => plainText(404, "not found");

const failed = problem(500, "Internal Server Error", "This page failed. The log of jwksd has the cause.");

/** Serves the admin address to requests that {@link refusalOf} does not refuse. @param pages by path; they show, and change nothing */
export function startAdmin(
  address: { readonly host: string; readonly port: number },
  pages: Readonly<Record<string, AdminPage>>,
  log: Logger,
): Promise<RunningServer> {
  const admin = `${address.host}:${address.port}`;
  const handler: Handler = (request, response) => {
    const { headers, method = "", socket, url } = request;
    const path = url?.split("?")[0] ?? "";
    const refusal = refusalOf({ path, headers, localAddress: socket.localAddress }, address.host);
    if (refusal !== undefined) return writeReply(response, refusals[refusal]);
    if (method !== "GET" && method !== "HEAD") return writeReply(response, methodNotAllowed.get);
    const page = (Object.hasOwn(pages, path) ? pages[path] : undefined) ?? notFound;
    const answer = async (): Promise<void> => {
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
    // A page can fail at any time: what it loads at its first request may have been removed since jwksd started.
    answer().catch((error: unknown) => {
      log.error({ admin, path, code: codeOf(error) }, `a page failed: ${(error as Error).message}`);
      writeReply(response, withoutBodyOnHead(failed, method));
    });
  };
  return startHttpServer(address, () => handler, {
    onOverload: (lost, message) => log.warn({ admin, ...lost }, message),
  });
}
