import assert from "node:assert/strict";
import { type TestContext, describe, test } from "node:test";
import { type TestProviders, startProviders } from "../bearer/provider.ts";
import { compared, send } from "../bearer/replies.ts";
import type { Row } from "../bearer/requests.ts";
import { startGuardHere } from "../guard/running.ts";
import { guardRows, hostFor, pathOf, secondHosts, secondSettings, tableHosts } from "../guard/table.ts";
import { skipWithout } from "../support/parts.ts";
import { soak } from "../support/soak.ts";
import type { WireReply } from "../support/wire.ts";
import type { Seen } from "./backends.ts";
import { type Proxy, proxies } from "./proxies.ts";
import { node } from "./site.ts";
import { traefik } from "./traefik.ts";

// The guard's table through real proxies, and through a stand-in for Traefik: what the client receives and what the program sees.

const replacedCertificate = "the proxy replaces the client's header, and without TLS there is no certificate";
const oneAuthorization = "nginx refuses a request with two Authorization headers, with its own page";
/** Rows that end differently through a proxy, with the proxy's rule. */
const differences: Readonly<Record<Proxy["name"], Readonly<Record<string, string>>>> = {
  nginx: {
    "two Authorization headers, the valid one first": oneAuthorization,
    "two Authorization headers, the valid one last": oneAuthorization,
    "the token's certificate": replacedCertificate,
  },
  caddy: { "the token's certificate": replacedCertificate },
  traefik: {},
};

/** In `npm test`, each row goes through one proxy. */
const every = soak(1, proxies.length + 1);

/** Returns a reply as the table expects it. */
function asExpected(reply: WireReply): WireReply {
  const { "retry-after": _, ...others } = reply.headers;
  // It depends on how often the guard has tried to fetch the keys.
  if (reply.status === 503) return { ...reply, headers: { ...others, "retry-after": "1" } };
  if (reply.status !== 200 || reply.body === "") return reply;
  const { identity } = JSON.parse(reply.body) as Seen;
  return { ...reply, body: JSON.stringify({ sub: identity["subject"] }) };
}

/** Starts a proxy for each of the table's guards. @returns the port for a path */
async function start(t: TestContext, proxy: Proxy, setup: TestProviders): Promise<(path: string) => number> {
  const { certificateHeader, ...others } = await secondSettings(t);
  // Traefik sets no header for a request without a certificate.
  const settings = proxy.name === "traefik" ? others : { certificateHeader, ...others };
  const second = secondHosts(setup);
  const [backendPort, ...guards] = [
    await node.start(t),
    await startGuardHere(t, { for: proxy.name, hosts: tableHosts(setup) }),
    await startGuardHere(t, { for: proxy.name, ...settings, hosts: second }),
  ] as const;
  const [port = 0, secondPort = 0] = await Promise.all(
    guards.map((guard) => proxy.start(t, { guard: guard.port, backendPort })),
  );
  return (path) => (Object.hasOwn(second, hostFor(path)) ? secondPort : port);
}

/** Sends a row's request and reports whether the reply is the expected one. */
async function differs(port: number, host: string, row: Row, setup: TestProviders): Promise<object | undefined> {
  const request = row.request(setup);
  if (row.again === true) await send(port, request, host);
  const [got, expected] = compared(row, request, asExpected(await send(port, request, host)));
  try {
    assert.deepEqual(got, expected);
    return undefined;
  } catch {
    return { got, expected };
  }
}

for (const [way, proxy] of [...proxies, traefik].entries()) {
  const isStandIn = proxy === traefik;
  describe(`through ${proxy.name}`, { skip: isStandIn ? false : skipWithout(proxy.name) }, () => {
    test("the client gets the library's response, and the program gets the subject", async (t) => {
      const setup = await startProviders(t);
      const portOf = await start(t, proxy, setup);
      const rows = guardRows(setup).filter(({ source }) => !isStandIn || source !== "8705 3");
      const chosen = rows.filter((_, index) => index % every === way % every);
      const found: Record<string, object> = {};
      for (const row of chosen) {
        const path = pathOf(row.request(setup).target);
        const difference = await differs(portOf(path), hostFor(path), row, setup);
        if (difference !== undefined) found[row.name] = difference;
      }
      for (const name of Object.keys(differences[proxy.name])) {
        assert.equal(
          Object.hasOwn(found, name),
          chosen.some((row) => row.name === name),
          name,
        );
        delete found[name];
      }
      assert.deepEqual(found, {});
    });
  });
}
