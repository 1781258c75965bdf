import { once } from "node:events";
import type { AddressInfo, Server, Socket } from "node:net";
import type { Scope } from "./service.ts";

/** Starts listening on a free port of a loopback address until the test ends. @returns the port */
export async function listening(t: Scope, server: Server, host = "127.0.0.1", port = 0): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
  });
  server.listen(port, host);
  await once(server, "listening");
  t.after(async () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}
