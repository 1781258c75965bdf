import { once } from "node:events";
import { connect } from "node:net";
import { Client } from "./load.ts";
import type { WireReply } from "./wire.ts";

/** Connects to a Unix socket; rejects if it is refused. Retries while the socket's queue is full, because the kernel does not let a client wait. */
export async function openSocket(path: string): Promise<Client> {
  for (;;) {
    const socket = connect({ path });
    try {
      await once(socket, "connect");
      return new Client(socket);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      await new Promise(setImmediate);
    }
  }
}

/** Returns a request as it is sent over the wire. */
export function requestText(method: string, target: string, body: unknown = ""): string {
  // The client writes Latin-1.
  const text = Buffer.from(typeof body === "string" ? body : JSON.stringify(body)).toString("latin1");
  return `${method} ${target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
}

export const signText = (body: unknown): string => requestText("POST", "/sign", body);

/** Sends one request on a new connection. */
export async function askSocket(path: string, text: string): Promise<WireReply> {
  const client = await openSocket(path);
  try {
    return await client.request(text);
  } finally {
    client.close();
  }
}
