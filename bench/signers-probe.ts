// Sends requests to an endpoint at a steady, low rate and reports the 99th percentile of its latency in milliseconds.

import { Client } from "../test/support/load.ts";
import { percentile } from "./signers-rate.ts";

const everyMs = 2;

process.on("message", async ({ port, ms }: { readonly port: number; readonly ms: number }) => {
  const client = await Client.open(port);
  const latencies: number[] = [];
  const start = performance.now();
  for (let due = start; due - start < ms; due += everyMs) {
    const waitMs = due - performance.now();
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
    const from = performance.now();
    await client.request();
    latencies.push(performance.now() - from);
  }
  client.close();
  process.send?.(percentile(latencies, 0.99));
});
process.on("disconnect", () => process.exit());
