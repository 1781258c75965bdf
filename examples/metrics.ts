// Run: npm run build && node examples/metrics.ts
// An OpenID provider whose metrics Prometheus can scrape, with prom-client. ops/alerts.yml and ops/dashboard.json work with them.

import { randomBytes } from "node:crypto";
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Metric, createProvider } from "jwksd";
import { createRemoteKeySet } from "jwksd/relying-party";
import { createKeyManager } from "jwksd/rotation";
import { memoryStore } from "jwksd/store";
import { type Counter, Registry, collectDefaultMetrics } from "prom-client";

const { PORT = "3000", ISSUER = `http://localhost:${PORT}` } = process.env;
const manager = await createKeyManager({
  issuer: ISSUER,
  store: memoryStore(),
  wrappingKeys: [randomBytes(32).toString("base64url")],
  onEvent: (event) => console.log(event.type),
});
const provider = await createProvider(
  { keys: manager },
  {
    onEvent: (event) => console.log(event.type),
  },
);
// The keys of another issuer, whose tokens this process accepts.
const partner = createRemoteKeySet({ issuer: "https://partner.example.com" });

const registry = new Registry();
collectDefaultMetrics({ register: registry });

/** Registers metrics that prom-client reads at each scrape. The list of metrics never changes, only their values. */
function register(part: { metrics(): readonly Metric[] }): void {
  for (const { name } of part.metrics()) {
    const get = async () => part.metrics().find((metric) => metric.name === name);
    // prom-client accepts this object, although its types do not say so.
    registry.registerMetric({ name, get } as unknown as Counter);
  }
}
for (const part of [manager, provider, partner]) register(part);

async function answerOther(request: IncomingMessage, response: ServerResponse): Promise<void> {
  // Your proxy must not expose this path.
  const isScrape = request.url === "/metrics";
  const text = isScrape ? await registry.metrics() : "not found\n";
  response.setHeader("Content-Type", isScrape ? registry.contentType : "text/plain");
  response.setHeader("Content-Length", Buffer.byteLength(text));
  response.writeHead(isScrape ? 200 : 404).end(text);
}

const server = createServer((request, response) => {
  provider.node(request, response, () => {
    answerOther(request, response).catch(() => response.destroy());
  });
});
server.listen(Number(PORT), () => {
  console.log(`JWK Set at http://localhost:${(server.address() as AddressInfo).port}/jwks`);
});
