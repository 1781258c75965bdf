import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Setup } from "../bearer/guards.ts";
import { startProviders } from "../bearer/provider.ts";
import { replyOf } from "../bearer/replies.ts";
import { type Row, rows } from "../bearer/requests.ts";
import type { HeaderLine, WireReply } from "../support/wire.ts";
import { type GuardHere, described, refusalIn, startGuardHere } from "./running.ts";
import { guardRows, hostFor, notInGuard, pathOf, secondHosts, secondSettings, tableHosts } from "./table.ts";

const forwarded = (method: string, host: string, target: string): HeaderLine[] => [
  ["X-Forwarded-Method", method],
  ["X-Forwarded-Host", `${host}:8443`],
  ["X-Forwarded-Uri", target],
];

let ids = 0;

/** Sends a row's request to the guard in the convention of a proxy. Returns the response that the client gets. */
async function askRow(guard: GuardHere, proxy: string, setup: Setup, { request, again }: Row): Promise<WireReply> {
  const { method = "GET", target, headers = [] } = request(setup);
  const host = hostFor(pathOf(target));
  const [, certificate = ""] = headers.find(([name]) => name === "Client-Cert") ?? [];
  const sent: HeaderLine[] = [
    ...headers.filter(([name]) => name !== "Client-Cert"),
    ["Client-Cert", `:${certificate}:`],
  ];
  const ask = (): Promise<WireReply> => {
    const lines =
      proxy === "nginx" ? described(method, host, target, `${(ids += 1)}`) : forwarded(method, host, target);
    return guard.send(...lines, ...sent);
  };
  if (again === true) await ask();
  const reply = await ask();
  return proxy === "nginx" && reply.status !== 200 ? refusalIn(reply) : reply;
}

/** Compares the guard's decision with the response that the table expects. */
function compare({ name, source, expected }: Row, reply: WireReply): void {
  const { status, headers: whole, body } = replyOf(expected, "GET", "");
  const headers: Record<string, string | undefined> = { ...whole };
  const { date: _, connection: __, "dpop-nonce": nonce, ...fields } = reply.headers;
  // It depends on how often the guard has tried to fetch the keys.
  if (/^[1-9]\d*$/.test(fields["retry-after"] ?? "")) headers["retry-after"] = fields["retry-after"];
  if (status !== 200) {
    assert.deepEqual(
      [name, source, reply.status, fields, reply.body, nonce !== undefined],
      [name, source, status, headers, body, "nonce" in expected],
    );
    return;
  }
  assert.deepEqual(
    [name, source, reply.status, fields["cache-control"], fields["x-jwksd-subject"] || undefined, reply.body],
    [name, source, 200, "no-store", (JSON.parse(body) as { sub?: string }).sub, ""],
  );
}

describe("the table of requests", () => {
  for (const proxy of ["nginx", "caddy", "traefik"]) {
    test(`${proxy} gets the expected response for every row that the guard can decide on its own`, async (t) => {
      const setup = await startProviders(t);
      const first = await startGuardHere(t, { for: proxy, hosts: tableHosts(setup) });
      // Traefik sets no header for a request without a certificate.
      const { certificateHeader, ...others } = await secondSettings(t);
      const settings = proxy === "traefik" ? others : { certificateHeader, ...others };
      const second = await startGuardHere(t, { for: proxy, ...settings, hosts: secondHosts(setup) });
      const chosen = guardRows(setup).filter(({ source }) => proxy !== "traefik" || source !== "8705 3");
      const inSecond = Object.keys(secondHosts(setup));
      for (const row of chosen) {
        const guard = inSecond.includes(hostFor(pathOf(row.request(setup).target))) ? second : first;
        compare(row, await askRow(guard, proxy, setup, row));
      }
      assert.ok(chosen.length >= 149, `${chosen.length}`);
    });
  }

  test("every other row is about the application itself", async (t) => {
    const setup = await startProviders(t);
    const hosts = Object.keys({ ...tableHosts(setup), ...secondHosts(setup) });
    const known = new Set([...hosts, ...Object.keys(notInGuard).map(hostFor)]);
    const paths = rows.map(({ request }) => hostFor(pathOf(request(setup).target)));
    assert.deepEqual(
      paths.filter((host) => !known.has(host)),
      [],
    );
  });
});
