import type { IncomingMessage } from "node:http";
import { TLSSocket } from "node:tls";
import { createBearer } from "jwksd/bearer";

export const bearer = createBearer({
  issuer: ["https://login.example.com", "https://partner.example.org"],
  audience: "https://api.example.com",
  dpop: "optional",
  baseUrl: "https://api.example.com",
  nonceSecret: process.env["NONCE_SECRET"],
  certificate: ({ socket }: IncomingMessage) => (socket instanceof TLSSocket ? socket.getPeerCertificate().raw : ""),
});
