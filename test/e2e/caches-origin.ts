import { once } from "node:events";
import { type AddressInfo, type Socket, connect, createServer } from "node:net";
import type { Scope } from "../support/service.ts";

/** A request that reached the origin, and the status of its response. */
export interface Exchange {
  /** Request line and headers as sent. */
  readonly request: string;
  readonly status: number;
}

/** A proxy to the origin that passes bytes unchanged and records the exchanges in order. */
export interface RecordedOrigin {
  readonly port: number;
  readonly exchanges: readonly Exchange[];
}

/** Records the exchanges with a port. A caller that has a response finds its exchange recorded. Pipelined requests would count as one. */
export async function recordOrigin(t: Scope, originPort: number): Promise<RecordedOrigin> {
  const exchanges: Exchange[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(originPort, "127.0.0.1");
    let request = "";
    near.setEncoding("latin1").on("data", (chunk: string) => {
      request += chunk;
      far.write(chunk, "latin1");
    });
    far.setEncoding("latin1").on("data", (chunk: string) => {
      // The first bytes after a request are the status line of its response.
      if (request !== "") exchanges.push({ request, status: Number(chunk.slice("HTTP/1.1 ".length, 12)) });
      request = "";
      near.write(chunk, "latin1");
    });
    near.on("end", () => far.end());
    far.on("end", () => near.end());
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => [near, far].forEach((either) => either.destroy()));
      socket.on("close", () => sockets.delete(socket));
    }
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    await once(server.close(), "close");
  });
  return { port: (server.address() as AddressInfo).port, exchanges };
}
