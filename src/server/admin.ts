import type { IncomingMessage } from "node:http";
import { writeReply } from "../http/node.ts";
import { methodNotAllowed } from "../http/respond.ts";
import type { Overload } from "./connections.ts";
import { type Handler, type RunningServer, startHttpServer } from "./http-server.ts";

/** A reply of the admin address, which no cache keeps. */
export interface AdminReply {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
}

/** Answers a GET or HEAD of one path. */
export type AdminPage = (request: IncomingMessage) => AdminReply | Promise<AdminReply>;

export const plainText = (status: number, text: string): AdminReply => ({
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

const notFound: AdminPage = () => plainText(404, "not found");

/** Serves pages for operators and orchestrators, by path. */
export function startAdmin(
  address: { readonly host: string; readonly port: number },
  pages: Readonly<Record<string, AdminPage>>,
  onOverload: (overload: Overload) => void,
): Promise<RunningServer> {
  const handler: Handler = (request, response) => {
    if (request.method !== "GET" && request.method !== "HEAD") return writeReply(response, methodNotAllowed.get);
    const path = request.url?.split("?")[0] ?? "";
    const page = (Object.hasOwn(pages, path) ? pages[path] : undefined) ?? notFound;
    const answer = async (): Promise<void> => {
      const { status, contentType, text } = await page(request);
      response.writeHead(status, {
        "Content-Type": contentType,
        "Content-Length": Buffer.byteLength(text),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
      });
      response.end(text);
    };
    answer().catch(() => response.destroy());
  };
  return startHttpServer(address, () => handler, { onOverload });
}
