import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProvider, localSigner } from "../src/index.ts";
import { type Plan, program } from "./comparisons.ts";
import { type Result, alternate, median, start } from "./measure.ts";
import { type Section, table } from "./report.ts";

const open = "open";
const ours = "jwksd";
const alone = "verify";
const others = ["express-oauth2-jwt-bearer", "express-jwt with jwks-rsa"];

/** Measures the CPU time that a guard adds to an open Express route, for a GET with a valid token. */
export async function guard({ rounds }: Plan): Promise<Section> {
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
  const providerServer = createServer((request, response) => provider.node(request, response));
  await new Promise<void>((resolve) => providerServer.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${(providerServer.address() as AddressInfo).port}`;
  const provider = await createProvider({ issuer, keyset: [{ kid: "key", signer: await localSigner(pair) }] });
  const claims = { sub: "alice", aud: "https://api.example.com", client_id: "app", scope: "orders:read" };
  const token = await provider.sign(claims, { typ: "at+jwt", lifetimeSeconds: 3_600 });

  const contestants = await Promise.all(
    [open, alone, ours, ...others, "express-jwt with jwksd"].map(async (name) => ({
      name,
      server: await start(["node", program("guarded"), name, issuer]),
      headers: { Authorization: `Bearer ${token}` },
    })),
  );
  for (const { name, server, headers } of contestants) {
    const { status } = await fetch(server.url, { headers });
    const { status: without } = await fetch(server.url);
    if (status !== 200 || (name !== open && without < 400))
      throw new Error(`${name} does not refuse requests without a token: ${status}, ${without}`);
  }
  const results = await alternate(contestants, rounds);
  await Promise.all(contestants.map(({ server }) => server.stop()));
  providerServer.close().closeAllConnections();
  return sectionOf(results);
}

function sectionOf(results: readonly Result[]): Section {
  const loadsOf = (name: string) => results.find((result) => result.name === name)?.loads ?? [];
  /** Returns the CPU time beyond the open route, round by round. */
  const costs = (name: string): number[] =>
    loadsOf(name).map(
      (load, round) => load.serverMicroseconds - (loadsOf(open)[round]?.serverMicroseconds ?? Number.NaN),
    );
  const ratio = (name: string, base: string): number =>
    median(costs(name).map((cost, round) => cost / (costs(base)[round] ?? Number.NaN)));
  const rows = results.map(({ name, loads }) => [
    name,
    median(loads.map(({ serverMicroseconds }) => serverMicroseconds)).toFixed(1),
    name === open ? "" : median(costs(name)).toFixed(1),
    name === open ? "" : ratio(name, alone).toFixed(2),
  ]);
  return {
    title: "A guarded GET in Express",
    text: table(["guard", "CPU µs/request", "beyond the open route", "ratio to verify alone"], rows),
    goals: [
      {
        name: `guard, beyond the open route: at most 1.1 of ${alone} alone`,
        reached: ratio(ours, alone) <= 1.1,
        measured: ratio(ours, alone).toFixed(2),
      },
      ...others.map((name) => ({
        name: `guard, beyond the open route: ${name} at least 1.5 times as much`,
        reached: ratio(name, ours) >= 1.5,
        measured: ratio(name, ours).toFixed(2),
      })),
    ],
  };
}
