import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({
  issuer: "https://login.example.com",
  audience: "https://api.example.com",
  // new WebSocket(url, ["bearer", token]): a browser cannot set headers
  token: ({ headers }: IncomingMessage) => /^bearer, *(\S+)$/.exec(headers["sec-websocket-protocol"] ?? "")?.[1],
});
const guard = bearer.upgrade({ scope: "orders:read" });

type Accept = (request: IncomingMessage, socket: Duplex, head: Buffer) => void;

/** `accept` calls handleUpgrade() from the ws package. */
export function guardUpgrades(server: Server, accept: Accept): void {
  server.on("upgrade", async (request, socket, head) => {
    if (await guard(request, socket)) accept(request, socket, head);
  });
}
