import { type RequestListener, createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type Socket, createServer as createTcpServer } from "node:net";
import type { Certificate } from "../client/certificate.ts";
import { listening } from "../support/listening.ts";

type Scope = { after(fn: () => void): void };

export const serveHttp = async (t: Scope, listener: RequestListener): Promise<string> =>
  `http://127.0.0.1:${await listening(t, createServer(listener))}`;

export const serveTls = async (t: Scope, certificate: Certificate, listener: RequestListener): Promise<string> =>
  `https://localhost:${await listening(t, createTlsServer(certificate, listener))}`;

/** Serves raw bytes to each client that connects. */
export const serveRaw = async (t: Scope, say: (socket: Socket) => void): Promise<string> =>
  `http://127.0.0.1:${await listening(t, createTcpServer(say))}`;

/** Serves a provider with these documents, with the set at `/jwks`. */
export function providing(
  jwks: RequestListener,
  metadata: (origin: string) => object = (origin) => ({ issuer: origin, jwks_uri: `${origin}/jwks` }),
): RequestListener {
  return (request, response) => {
    if (request.url === "/jwks") return jwks(request, response);
    if (request.url !== "/.well-known/openid-configuration") return response.writeHead(404).end();
    const scheme = "encrypted" in request.socket ? "https" : "http";
    return response
      .writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify(metadata(`${scheme}://${request.headers.host}`)));
  };
}
