import { fork } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProvider, localSigner } from "../src/index.ts";
import type { Plan } from "./comparisons.ts";
import { median } from "./measure.ts";
import { type Section, table } from "./report.ts";

const perSecond = 2_900;
const bursts = [1, 16];
const audience = "api";

type Task = () => Promise<unknown>;

/** Measures how much a process delays its endpoint by signing and verifying tokens with local keys. */
export async function publishing({ rounds }: Plan): Promise<Section> {
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
  const provider = await createProvider({
    issuer: "https://op.example",
    keyset: [{ kid: "key", signer: await localSigner(pair) }],
  });
  const sign = (): Promise<string> => provider.sign({ sub: "alice", aud: audience }, { lifetimeSeconds: 3600 });
  const token = await sign();
  const verify: Task = () => provider.verify(token, { audience });
  let turn = 0;
  const loads: Readonly<Record<string, Task>> = {
    none: () => Promise.resolve(),
    "signs 2,900 tokens a second": sign,
    "verifies 2,900 tokens a second": verify,
    "does both, 1,450 each": () => ((turn += 1) % 2 === 0 ? sign() : verify()),
  };

  const server = createServer((request, response) => provider.node(request, response)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const probe = fork(new URL("signers-probe.ts", import.meta.url));
  const p99Ms = async (ms: number): Promise<number> => {
    probe.send({ port, ms });
    const [latency] = (await once(probe, "message")) as [number];
    return latency;
  };

  const latencies = new Map(Object.keys(loads).map((name) => [name, bursts.map(() => [] as number[])]));
  for (let round = -1; round < rounds * 3; round += 1) {
    for (const [name, task] of Object.entries(loads)) {
      for (const [index, burst] of bursts.entries()) {
        const stop = pace(task, burst);
        const latency = await p99Ms(500);
        await stop();
        // The first round warms up.
        if (round >= 0) latencies.get(name)?.[index]?.push(latency);
      }
    }
  }
  probe.disconnect();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  return {
    title: "/jwks in a process that signs and verifies with local keys",
    text: table(
      ["load on the process", ...bursts.map((burst) => `p99 ms, ${burst === 1 ? "one by one" : `${burst} at once`}`)],
      [...latencies].map(([name, byBurst]) => [name].concat(byBurst.map((all) => median(all).toFixed(2)))),
    ),
    goals: [],
  };
}

/** Starts tasks at a steady rate, several at a time. Returns a function that stops this and waits for tasks in flight. */
function pace(task: Task, burst: number): () => Promise<unknown> {
  const inFlight = new Set<Promise<unknown>>();
  const everyMs = (1_000 * burst) / perSecond;
  let due = performance.now();
  let timer: NodeJS.Timeout;
  const tick = (): void => {
    const now = performance.now();
    // Tasks that a busy machine could not start in time are skipped.
    due = Math.max(due, now - 20);
    for (; due <= now; due += everyMs) {
      for (let count = 0; count < burst; count += 1) {
        const run = task().finally(() => inFlight.delete(run));
        inFlight.add(run);
      }
    }
    timer = setTimeout(tick, Math.max(0, due - performance.now()));
  };
  tick();
  return () => {
    clearTimeout(timer);
    return Promise.all(inFlight);
  };
}
