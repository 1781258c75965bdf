import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Provider, createProvider, localSigner } from "../src/index.ts";
import { pkcs11Backend } from "../src/keys/pkcs11/backend.ts";
import { type SoftHsm, createShim, createSoftHsm } from "../test/support/softhsm.ts";
import { type Plan, program, serve } from "./comparisons.ts";
import { childrenOf, median, pin, serverCore, start } from "./measure.ts";
import { type Goal, type Section, table } from "./report.ts";
import { type Rate, rateOf } from "./signers-rate.ts";
import type { RawReply, RawRequest } from "./signers-raw.ts";

const inFlight = [1, 16, 64];
const delayMs = 20;
const sessions = 64;
const allCores = "0,1";
const otherCore = "1";
const issuer = "https://op.example";
const keyLabel = "bench";

const raw = "pkcs11js in a child";
const alone = "jwksd, the signer alone";
const whole = "jwksd, provider.sign";
const inChild = "pkcs11js, a loop in the child";

type Measure = (inFlight: number, ms: number) => Promise<Rate>;

/** Contestants that sign with one key. The first one is the base of the ratios. */
interface Group {
  readonly name: string;
  readonly contestants: Readonly<Record<string, Measure>>;
}

type Results = ReadonlyMap<string, ReadonlyMap<number, readonly Rate[]>>;

/** Measures the signatures per second of each kind of signer, next to the same call without jwksd. */
export async function signers(plan: Plan): Promise<Section> {
  const { rounds } = plan;
  const ends: (() => unknown)[] = [];
  const roundMs = rounds === 1 ? 500 : 1_000;
  try {
    const token = await createSoftHsm({ after: (end) => void ends.unshift(end) });
    token.pkcs11Tool("--keypairgen", "--key-type", "EC:prime256v1", "--label", keyLabel, "--id", "01");
    const shim = createShim(token);
    shim.control(`C_Sign delay ${delayMs}`);
    const local = await localGroup();
    const softHsm = await pkcs11Group("SoftHSM", token, token.modulePath, ends);
    const slow = await pkcs11Group(`${delayMs} ms module`, token, shim.modulePath, ends);
    const texts: string[] = [];
    const goals: Goal[] = [];
    for (const group of [local, softHsm, slow]) {
      const results = await alternate(group, rounds, roundMs);
      texts.push(`${group.name}:`, resultsTable(group, results));
      if (group === softHsm) goals.push(softHsmGoal(results, alone), softHsmGoal(results, whole));
      if (group === slow) goals.push(slowGoal(results, alone), slowGoal(results, whole));
    }
    const publishing = await publishingWhileSigning(slow, plan, roundMs, ends);
    return {
      title: "Signers: HSM and local",
      text: [explanation, ...texts, publishing.text].join("\n\n"),
      goals: [...goals, ...publishing.goals],
    };
  } finally {
    for (const end of ends) await end();
  }
}

const explanation = `"N in flight" means that N callers each request one signature at a time. Ratios are relative to the table's first row in the same round. \`provider.sign\` creates a complete token and checks the signature with the published key; "the signer alone" does neither. "In a child" is pkcs11js with a pool of ${sessions} sessions in its own process, which receives one message per digest, as the simplest signer in a child process would. "A loop in the child" needs no messages, so it shows the module's maximum rate. The ${delayMs} ms module is SoftHSM behind a shim that makes each C_Sign take ${delayMs} ms.`;

async function localGroup(): Promise<Group> {
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
  const message = crypto.getRandomValues(new Uint8Array(300));
  const signer = await localSigner(pair);
  const provider = await createProvider({ issuer, keyset: [{ kid: "local", signer }] });
  const webCrypto = () => crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, pair.privateKey, message);
  return {
    name: "Local key",
    contestants: {
      "Web Crypto alone": (count, ms) => rateOf(webCrypto, count, ms),
      [whole]: (count, ms) => rateOf(() => token(provider), count, ms),
    },
  };
}

async function pkcs11Group(
  name: string,
  { pinFile, pin, uri }: SoftHsm,
  modulePath: string,
  ends: (() => unknown)[],
): Promise<Group & { readonly providers: readonly [Provider] }> {
  const child = await startRaw(modulePath, pin);
  ends.unshift(() => child.stop());
  const backend = pkcs11Backend({ modulePath, pin: { file: pinFile }, sessions });
  const signer = await backend.open(`${uri};object=${keyLabel}`);
  ends.unshift(() => signer.close());
  const provider = await createProvider({
    issuer,
    keyset: [{ kid: name, signer }],
    signerLimits: { maxConcurrent: sessions },
  });
  const digest = new Uint8Array(32).fill(7);
  return {
    name,
    providers: [provider],
    contestants: {
      [raw]: (count, ms) => rateOf(() => child.sign(digest), count, ms),
      [alone]: (count, ms) => rateOf(() => signer.sign({ digest, message: digest }), count, ms),
      [whole]: (count, ms) => rateOf(() => token(provider), count, ms),
      [inChild]: (count, ms) => child.measure(count, ms),
    },
  };
}

const token = (provider: Provider): Promise<string> => provider.sign({ sub: "alice" }, { lifetimeSeconds: 300 });

async function startRaw(modulePath: string, pin: string) {
  const child = fork(new URL("signers-raw.ts", import.meta.url), {
    serialization: "advanced",
    env: { ...process.env, UV_THREADPOOL_SIZE: String(sessions + 2) },
  });
  const waiting = new Map<number, (signature: Uint8Array) => void>();
  let rated: ((rate: Rate) => void) | undefined;
  let nextId = 0;
  child.on("message", (reply: RawReply) => {
    if (reply.kind === "rate") rated?.(reply.rate);
    if (reply.kind !== "signature") return;
    waiting.get(reply.id)?.(reply.signature);
    waiting.delete(reply.id);
  });
  ask(child, { kind: "open", modulePath, pin, sessions, label: keyLabel });
  await once(child, "message");
  return {
    sign(digest: Uint8Array): Promise<Uint8Array> {
      return new Promise((resolve) => {
        const id = nextId++;
        waiting.set(id, resolve);
        ask(child, { kind: "sign", id, digest });
      });
    },
    measure(inFlight: number, ms: number): Promise<Rate> {
      return new Promise((resolve) => {
        rated = resolve;
        ask(child, { kind: "measure", inFlight, ms });
      });
    },
    async stop(): Promise<void> {
      child.disconnect();
      await once(child, "exit");
    },
  };
}

const ask = (child: ChildProcess, request: RawRequest): void => void child.send(request);

/** Runs rounds of all contestants in turn, back and forth, after one round as a warm-up. */
async function alternate({ contestants }: Group, rounds: number, roundMs: number): Promise<Results> {
  const inOrder = Object.entries(contestants);
  const results = new Map(inOrder.map(([name]) => [name, new Map(inFlight.map((count) => [count, [] as Rate[]]))]));
  for (let round = -1; round < rounds; round += 1) {
    for (const count of inFlight) {
      for (const [name, measure] of round % 2 === 0 ? inOrder : inOrder.toReversed()) {
        const rate = await measure(count, round < 0 ? roundMs / 5 : roundMs);
        if (round >= 0) results.get(name)?.get(count)?.push(rate);
      }
    }
  }
  return results;
}

const ratesOf = (results: Results, name: string, count: number): readonly Rate[] => results.get(name)?.get(count) ?? [];

function ratioOf(results: Results, name: string, base: string, count: number): number {
  const bases = ratesOf(results, base, count);
  const ratios = ratesOf(results, name, count).map(
    ({ perSecond }, round) => perSecond / (bases[round]?.perSecond ?? Number.NaN),
  );
  return median(ratios);
}

function resultsTable({ contestants }: Group, results: Results): string {
  const names = Object.keys(contestants);
  const [base = ""] = names;
  const cells = (name: string, count: number): string[] => {
    const rates = ratesOf(results, name, count);
    return [
      Math.round(median(rates.map(({ perSecond }) => perSecond))).toLocaleString("en"),
      ratioOf(results, name, base, count).toFixed(2),
      median(rates.map(({ p99Ms }) => p99Ms)).toFixed(1),
    ];
  };
  return table(
    ["", ...inFlight.flatMap((count) => [`per second, ${count} in flight`, "ratio", "p99 ms"])],
    names.map((name) => [name].concat(inFlight.flatMap((count) => cells(name, count)))),
  );
}

function softHsmGoal(results: Results, name: string): Goal {
  const measured = ratioOf(results, name, raw, 16);
  return {
    name: `SoftHSM, ${name}, 16 in flight: at least 0.8 times ${raw}`,
    reached: measured >= 0.8,
    measured: measured.toFixed(2),
  };
}

function slowGoal(results: Results, name: string): Goal {
  const most = (64 / delayMs) * 1_000;
  const measured = median(ratesOf(results, name, 64).map(({ perSecond }) => perSecond)) / most;
  return {
    name: `${delayMs} ms module, ${name}, 64 in flight: at least 0.95 of 64 in ${delayMs} ms`,
    reached: measured >= 0.95,
    measured: measured.toFixed(2),
  };
}

const portOf = ({ url }: { readonly url: string }): number => Number(new URL(url).port);

/** Measures how signing at full load delays endpoints: of the process that signs, and of the service, which never signs. */
async function publishingWhileSigning(
  { providers: [provider], contestants }: Group & { readonly providers: readonly [Provider] },
  { rounds, fewKeys }: Plan,
  roundMs: number,
  ends: (() => unknown)[],
): Promise<{ readonly text: string; readonly goals: readonly Goal[] }> {
  const signingPids = [process.pid, ...childrenOf(process.pid)];
  const server = createServer((request, response) => provider.node(request, response)).listen(0, "127.0.0.1");
  await once(server, "listening");
  ends.unshift(() => server.close());
  const service = await start(serve(fewKeys));
  const constant = await start(["node", program("constant"), fewKeys]);
  ends.unshift(() => Promise.all([service.stop(), constant.stop()]));
  const probe = fork(new URL("signers-probe.ts", import.meta.url));
  ends.unshift(() => probe.disconnect());
  // Callers that start together would stay together and cause bursts, which do not occur in practice.
  const signing: Measure = (count, ms) => rateOf(() => token(provider), count, ms, delayMs / sessions);
  const withoutJwksd = contestants[inChild] as Measure;
  const endpoints = [
    { name: "node:http constant, while pkcs11js signs without jwksd", port: portOf(constant), load: withoutJwksd },
    { name: "node:http constant, while another process signs", port: portOf(constant), load: signing },
    { name: "jwksd serve, while another process signs", port: portOf(service), load: signing },
    { name: "provider.node in the process that signs", port: (server.address() as AddressInfo).port, load: signing },
    {
      name: "jwksd serve on its own core",
      port: portOf(service),
      load: signing,
      isPinned: true,
    },
  ];
  const p99Ms = async (port: number): Promise<number> => {
    probe.send({ port, ms: roundMs });
    const [latency] = (await once(probe, "message")) as [number];
    return latency;
  };
  const rows: string[][] = [];
  const goals: Goal[] = [];
  ends.unshift(() => pin([process.pid], allCores));
  for (const { name, port, load, isPinned = false } of endpoints) {
    if (isPinned) {
      pin(signingPids, otherCore);
      pin([probe.pid ?? 0], serverCore);
    }
    await p99Ms(port);
    const idle: number[] = [];
    const busy: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      idle.push(await p99Ms(port));
      const loaded = load(sessions, roundMs + 200);
      busy.push(await p99Ms(port));
      await loaded;
    }
    const ratio = median(busy.map((latency, round) => latency / (idle[round] ?? Number.NaN)));
    rows.push([name, median(idle).toFixed(2), median(busy).toFixed(2), ratio.toFixed(2)]);
    if (name.startsWith("node:http")) continue;
    goals.push({
      name: `/jwks from ${name}: p99 at most 1.5 times idle`,
      reached: ratio <= 1.5,
      measured: ratio.toFixed(2),
    });
  }
  const head = ["/jwks, 500 requests a second on one connection", "p99 ms, idle", "p99 ms, while signing", "ratio"];
  const text = `"While signing" means at full load: \`provider.sign\` uses the ${delayMs} ms module with 64 signatures in flight, each on its own thread, on the same two cores as the endpoint and the probe. The first two rows show the cost of merely sharing the two cores: a server with a constant response runs alongside the loop in the child, then alongside the third row's load. In the last row, the endpoint and the probe share one core, and the signing processes use the other.`;
  return { text: `${table(head, rows)}\n\n${text}`, goals };
}
