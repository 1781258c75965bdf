import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createBearerGuard } from "../../src/verify/bearer/index.ts";

// A server that refuses every upgrade, in Node, Bun and Deno. It prints its port.

const guard = createBearerGuard({ issuer: "https://op.example", audience: "https://api.example.com" }).upgrade();
const server = createServer();
server.on("upgrade", (request, socket) => void guard(request, socket));
server.listen(0, "127.0.0.1", () => console.log((server.address() as AddressInfo).port));
