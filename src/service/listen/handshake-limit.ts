import type { Server } from "node:https";
import type { Socket } from "node:net";

/**
 * Limits concurrent handshakes. If there are too many, aborts the oldest: honest peers finish within milliseconds, so
 * the oldest handshake is most likely with a silent peer.
 */
export function boundHandshakes(server: Server, maxHandshakes: number): void {
  // Ordered by age, and keyed by peer address, because in Node, a connection has a different socket object after its
  // handshake.
  const inProgress = new Map<string, Socket>();
  server.on("connection", (socket: Socket) => {
    const peer = peerOf(socket);
    inProgress.set(peer, socket);
    socket.once("close", () => {
      // The peer may already have a new connection from the same port.
      if (inProgress.get(peer) === socket) inProgress.delete(peer);
    });
    const [oldest] = inProgress;
    if (oldest === undefined || inProgress.size <= maxHandshakes) return;
    inProgress.delete(oldest[0]);
    oldest[1].destroy();
  });
  server.on("secureConnection", (socket) => inProgress.delete(peerOf(socket)));
  // node:https would treat a handshake that failed or took too long as a malformed request.
  server.removeAllListeners("tlsClientError");
  server.on("tlsClientError", (_error, socket) => socket.destroy());
}

const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;
