import type { Reply } from "./respond.ts";

/** What is used of `http.IncomingMessage` (and of Express's and Connect's request). */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** The URL before a framework stripped its mount path. */
  readonly originalUrl?: string | undefined;
  readonly headers: { readonly "if-none-match"?: string | undefined };
}

/** What is used of `http.ServerResponse`. */
export interface NodeResponse {
  writeHead(status: number, headers: string[]): unknown;
  end(): unknown;
  end(body: string, encoding: "latin1"): unknown;
}

/** Writes a reply. Headers and a Latin-1 string go to the socket in one write, which a Buffer would make two. */
export function writeReply(response: NodeResponse, reply: Reply): void {
  response.writeHead(reply.status, reply.headers as string[]);
  if (reply.body === null) response.end();
  else response.end(reply.body, "latin1");
}
