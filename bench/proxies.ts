import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { join } from "node:path";
import { createProvider, localSigner } from "../src/index.ts";
import { location, startApache } from "../test/bearer/apache.ts";
import { certificateFor } from "../test/client/certificate.ts";
import { proxies } from "../test/proxies/proxies.ts";
import { nginxConfig, startProgram } from "../test/support/caches.ts";
import { listening } from "../test/support/listening.ts";
import { type Scope, freePort, temporaryFolder } from "../test/support/service.ts";
import { type Plan, cli } from "./comparisons.ts";
import { type Contestant, type Result, alternate, childrenOf, median, pin, serverCore, start } from "./measure.ts";
import { type Section, table } from "./report.ts";

const [nginx, apache, ours, theirs] = ["nginx", "Apache", "nginx, jwksd guard", "Apache, mod_auth_openidc"];
/** Names of the proxies without a guard, by the name with it. */
const open: Readonly<Record<string, string>> = { [ours]: nginx, [theirs]: apache };
const audience = "https://api.example.com";

/** Measures the CPU time of all processes that a guard adds to a proxy, for a GET with a valid token. */
export async function proxyGuards({ rounds }: Plan): Promise<Section> {
  const ends: (() => Promise<void>)[] = [];
  try {
    const contestants = await startAll({ after: (end) => void ends.push(end) });
    return sectionOf(await alternate(contestants, rounds));
  } finally {
    for (const end of ends.toReversed()) await end();
  }
}

/** Runs `begin`, which starts programs, and returns its port with the ids of their processes, pinned to the servers' core. */
async function processesOf(begin: () => Promise<number>): Promise<{ readonly port: number; readonly pids: number[] }> {
  const before = childrenOf(process.pid);
  const port = await begin();
  // Apache accepts connections before its worker process runs.
  await fetch(`http://127.0.0.1:${port}/jwks`);
  const started = childrenOf(process.pid).filter((pid) => !before.includes(pid));
  const pids = [...started, ...started.flatMap(childrenOf)];
  pin(pids, serverCore);
  return { port, pids };
}

async function startAll(t: Scope): Promise<readonly Contestant[]> {
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
  const issuerServer = createServer((request, response) => provider.node(request, response));
  const issuer = `http://127.0.0.1:${await listening(t, issuerServer)}`;
  const provider = await createProvider({ issuer, keyset: [{ kid: "key", signer: await localSigner(pair) }] });
  const claims = { sub: "alice", aud: audience, client_id: "app", scope: "orders:read" };
  const token = await provider.sign(claims, { typ: "at+jwt", lifetimeSeconds: 3_600 });
  // mod_auth_openidc accepts only https.
  const certificate = certificateFor("localhost");
  const secure = createSecureServer(certificate, (request, response) => provider.node(request, response));
  const secureIssuer = `https://localhost:${await listening(t, secure)}`;

  const backendPort = await startBackend(t);
  const settings = ["--for", "nginx", "--listen", "127.0.0.1:0", "--admin", "off", "--json-logs"];
  const tokens = ["--issuer", issuer, "--audience", audience, "--scope", "orders:read"];
  const guard = await start([process.execPath, cli, "guard", ...settings, ...tokens]);
  t.after(guard.stop);
  const guardPort = Number(new URL(guard.url).port);
  const [proxy] = proxies;
  const withGuard = await processesOf(() =>
    (proxy as (typeof proxies)[number]).start(t, { guard: guardPort, backendPort }),
  );
  const withoutGuard = await processesOf(() => startOpen(t, backendPort));

  const workers = "StartServers 1\nServerLimit 1\nThreadsPerChild 64\nMaxRequestWorkers 64";
  const passOn = `ProxyPass / http://127.0.0.1:${backendPort}/`;
  const requirements = [
    `Require claim iss:${issuer}`,
    `Require claim aud:${audience}`,
    'Require claim "scope~(^| )orders:read( |$)"',
  ];
  const keys = `OIDCOAuthVerifyJwksUri ${secureIssuer}/jwks`;
  const guardedApache = await processesOf(() =>
    startApache(t, certificate.cert, () => [workers, keys, location("/jwks", requirements), passOn].join("\n")),
  );
  const openApache = await processesOf(() => startApache(t, certificate.cert, () => [workers, passOn].join("\n")));

  const contestant = (name: string, port: number, pids: readonly number[]): Contestant => ({
    name,
    headers: { Authorization: `Bearer ${token}` },
    server: { ...guard, pids, url: `http://127.0.0.1:${port}/jwks` },
  });
  const contestants = [
    contestant(nginx, withoutGuard.port, withoutGuard.pids),
    contestant(ours, withGuard.port, [...withGuard.pids, ...guard.pids]),
    contestant(apache, openApache.port, openApache.pids),
    contestant(theirs, guardedApache.port, guardedApache.pids),
  ];
  for (const { name, server, headers } of contestants) {
    const [{ status }, { status: without }] = [await fetch(server.url, { headers }), await fetch(server.url)];
    const expected = open[name] === undefined ? 200 : 401;
    if (status !== 200 || without !== expected)
      throw new Error(`${name} responds with ${status}, without a token ${without}`);
  }
  return contestants;
}

/** Starts nginx with these lines inside `server`. @returns the port */
async function startServer(t: Scope, lines: string): Promise<number> {
  const [folder, port] = [await temporaryFolder(t), await freePort()];
  await writeFile(join(folder, "nginx.conf"), nginxConfig(`server { listen 127.0.0.1:${port}; ${lines} }`));
  await startProgram(t, "nginx", ["-p", folder, "-c", "nginx.conf", "-e", "stderr"], { host: "127.0.0.1", port });
  return port;
}

const startBackend = (t: Scope): Promise<number> => startServer(t, "location / { return 200 ok; }");
const startOpen = (t: Scope, backendPort: number): Promise<number> =>
  startServer(t, `location / { proxy_pass http://127.0.0.1:${backendPort}; }`);

function sectionOf(results: readonly Result[]): Section {
  const costsOf = (name: string): readonly number[] =>
    results.find((result) => result.name === name)?.loads.map(({ serverMicroseconds }) => serverMicroseconds) ?? [];
  /** Returns the CPU time beyond the open proxy, round by round. */
  const added = (name: string): number[] =>
    costsOf(name).map((cost, round) => cost - (costsOf(open[name] ?? "")[round] ?? Number.NaN));
  const ratio = median(added(ours).map((cost, round) => cost / (added(theirs)[round] ?? Number.NaN)));
  const rows = results.map(({ name }) => [
    name,
    median(costsOf(name)).toFixed(0),
    open[name] === undefined ? "" : median(added(name)).toFixed(0),
  ]);
  return {
    title: "A guarded GET through a proxy",
    text: table(["proxy and guard", "CPU µs/request", "beyond the open proxy"], rows),
    goals: [
      {
        name: `${ours}, beyond the open proxy: at most 3 times ${theirs}`,
        reached: ratio <= 3,
        measured: ratio.toFixed(2),
      },
    ],
  };
}
