import type { IncomingMessage } from "node:http";
import { TLSSocket } from "node:tls";
import { createBearerGuard } from "jwksd/bearer";

export const bearer = createBearerGuard({
  issuer: ["https://login.example.com", "https://partner.example.org"],
  audience: "https://api.example.com",
  dpop: "optional",
  baseUrl: "https://api.example.com",
  nonceSecret: process.env["NONCE_SECRET"],
  certificate: ({ socket }: IncomingMessage) => (socket instanceof TLSSocket ? socket.getPeerCertificate().raw : ""),
});
