import { type RequestListener, createServer } from "node:http";
import { listening } from "./listening.ts";
import { type Scope } from "./service.ts";

/** A server with endless responses. */
export interface EndlessServer {
  readonly port: number;
  /** Number of bytes sent so far. */
  readonly sent: number;
  readonly answer: RequestListener;
}

/** Starts a server whose responses begin in this way and continue until the client disconnects, up to 200 MB. */
export async function endless(t: Scope, headers: Readonly<Record<string, string>> = {}): Promise<EndlessServer> {
  const chunk = Buffer.alloc(65_536, "a");
  let sent = 0;
  const answer: RequestListener = (request, response) => {
    request.resume();
    response.writeHead(200, headers).write('{"kvs":"');
    const more = (): void => {
      while (!response.destroyed && sent < 200_000_000) {
        sent += chunk.length;
        if (!response.write(chunk)) return;
      }
      response.end();
    };
    response.on("drain", more);
    more();
  };
  const port = await listening(t, createServer(answer));
  return {
    port,
    answer,
    get sent() {
      return sent;
    },
  };
}
