import type { Socket } from "node:net";
import type { Server } from "node:https";

/**
 * Limits the handshakes under way. One too many ends the oldest handshake, because honest peers need milliseconds, and silent peers wait
 * for longest.
 */
export function boundHandshakes(server: Server, most: number): void {
  // In order of age, by the address of the peer: in Node a connection has another socket object after its handshake.
  const underWay = new Map<string, Socket>();
  server.on("connection", (socket: Socket) => {
    const peer = peerOf(socket);
    underWay.set(peer, socket);
    socket.once("close", () => {
      // The peer may have a new connection from the same port.
      if (underWay.get(peer) === socket) underWay.delete(peer);
    });
    const [oldest] = underWay;
    if (oldest === undefined || underWay.size <= most) return;
    underWay.delete(oldest[0]);
    oldest[1].destroy();
  });
  server.on("secureConnection", (socket) => underWay.delete(peerOf(socket)));
  // A handshake that fails, or takes too long. node:https would answer it as a broken request.
  server.removeAllListeners("tlsClientError");
  server.on("tlsClientError", (_error, socket) => socket.destroy());
}

const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;
