import { type IncomingMessage, type ServerResponse, createServer, request } from "node:http";
import { once } from "node:events";
import { buffer } from "node:stream/consumers";
import { listening } from "../support/listening.ts";
import type { Scope } from "../support/service.ts";

/** Gives each request to one of the processes by turns, or to the next one where nobody listens; 502 to a POST whose process ends under way. */
export async function startBalancer(t: Scope, ports: () => readonly number[]): Promise<string> {
  let turn = 0;
  const server = createServer(async (incoming, response) => {
    const body = await buffer(incoming);
    const all = ports();
    turn += 1;
    for (let tried = 0; tried < all.length; tried += 1) {
      const answer = await forward(incoming, body, all[(turn + tried) % all.length] as number);
      // RFC 9110 section 9.2.2: only what is idempotent may be sent again.
      if (answer === "refused" || (answer === "reset" && incoming.method === "GET")) continue;
      if (answer === "reset") break;
      response.writeHead(answer.status, answer.headers as Record<string, string>).end(answer.body);
      return;
    }
    gone(response);
  });
  return `http://127.0.0.1:${await listening(t, server)}`;
}

const gone = (response: ServerResponse): void => void response.writeHead(502).end();

async function forward({ method, url, headers }: IncomingMessage, body: Buffer, port: number) {
  const { "transfer-encoding": _, ...rest } = headers;
  // A connection for each request: one that is kept may end just when the next request is sent.
  const own = { ...rest, connection: "close" };
  const sent = request({ host: "127.0.0.1", port, method, path: url, headers: own, agent: false }).end(body);
  try {
    const [answer] = (await once(sent, "response")) as [IncomingMessage];
    return { status: answer.statusCode ?? 502, headers: answer.headers, body: await buffer(answer) };
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ECONNREFUSED" ? "refused" : "reset";
  }
}
