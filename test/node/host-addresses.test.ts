import assert from "node:assert/strict";
import { lookup } from "node:dns/promises";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { createHostLookup } from "../../src/library/node/host-addresses.ts";
import { createGuardedFetch } from "../../src/library/node/index.ts";
import { clientId, tokenOf, verifier } from "../client/client.ts";
import { type NameServer, nameServer } from "../support/name-server.ts";
import { simulatedClock } from "../support/simulated.ts";
import { verdict } from "../token/compact.ts";

interface System {
  readonly hosts?: string;
  readonly resolvConf?: string;
  readonly answers?: Parameters<typeof nameServer>[1];
}

/** A lookup over files of its own and a name server on loopback. */
async function system(t: TestContext, { hosts = "", resolvConf = "", answers = {} }: System) {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-hosts-"));
  t.after(() => rm(folder, { recursive: true }));
  const [hostsFile, resolverFile] = [join(folder, "hosts"), join(folder, "resolv.conf")];
  await Promise.all([writeFile(hostsFile, hosts), writeFile(resolverFile, resolvConf)]);
  const server = await nameServer(t, answers);
  const resolve = createHostLookup({ hostsFile, resolverFile, servers: [server.address] });
  const addresses = async (host: string): Promise<string[]> => (await resolve(host)).map(({ address }) => address);
  return { server, resolve, addresses };
}

/** Each name that was asked for, once, in order. */
const names = ({ questions }: NameServer): string[] => [...new Set(questions.map((text) => text.split(" ")[0] ?? ""))];

describe("DNS", () => {
  test("gives all addresses of both families", async (t) => {
    const answers = { "client.example": ["192.0.2.1", "2001:db8::1", "192.0.2.2"] };
    const { resolve, server } = await system(t, { answers });
    assert.deepEqual(await resolve("client.example"), [
      { address: "192.0.2.1", family: 4 },
      { address: "192.0.2.2", family: 4 },
      { address: "2001:db8::1", family: 6 },
    ]);
    assert.deepEqual(server.questions.toSorted(), ["client.example A", "client.example AAAA"]);
  });

  for (const address of ["192.0.2.1", "2001:db8::1"]) {
    test(`gives the addresses of one family where there are no others: ${address}`, async (t) => {
      const { addresses } = await system(t, { answers: { "client.example": [address] } });
      assert.deepEqual(await addresses("client.example"), [address]);
    });
  }

  const failures: [name: string, answer: readonly string[] | number, code: string][] = [
    ["a name that does not exist", 3, "ENOTFOUND"],
    ["a name without addresses", [], "ENOTFOUND"],
    ["a server that fails", 2, "ESERVFAIL"],
    ["a server that refuses", 5, "EREFUSED"],
  ];
  for (const [name, answer, code] of failures) {
    test(`${name}: ${code}`, async (t) => {
      const { addresses } = await system(t, { answers: { "client.example": answer } });
      await assert.rejects(addresses("client.example"), { code });
    });
  }
});

describe("the hosts file", () => {
  const hosts = [
    "# 192.0.2.9 client.example",
    "192.0.2.1\tClient.Example other.example # client2.example",
    "2001:db8::1 client.example",
    "nonsense client.example",
    "",
  ].join("\r\n");

  test("comes first, and then DNS is not asked", async (t) => {
    const { addresses, server } = await system(t, { hosts, answers: { "client.example": ["192.0.2.7"] } });
    assert.deepEqual(await addresses("client.example"), ["192.0.2.1", "2001:db8::1"]);
    assert.deepEqual(await addresses("OTHER.example"), ["192.0.2.1"]);
    assert.deepEqual(server.questions, []);
  });

  test("says nothing of other names, nor in comments", async (t) => {
    const { addresses } = await system(t, { hosts, answers: { "client2.example": ["192.0.2.7"] } });
    assert.deepEqual(await addresses("client2.example"), ["192.0.2.7"]);
    await assert.rejects(addresses("x.client.example"), { code: "ENOTFOUND" });
  });

  test("is read again each time, and need not be there", async (t) => {
    const { address } = await nameServer(t, { "client.example": ["192.0.2.7"] });
    const folder = await mkdtemp(join(tmpdir(), "jwksd-hosts-"));
    t.after(() => rm(folder, { recursive: true }));
    const hostsFile = join(folder, "hosts");
    const resolve = createHostLookup({ hostsFile, resolverFile: join(folder, "none"), servers: [address] });
    const first = async () => (await resolve("client.example"))[0]?.address;
    assert.equal(await first(), "192.0.2.7");
    await writeFile(hostsFile, "192.0.2.1 client.example");
    assert.equal(await first(), "192.0.2.1");
  });
});

describe("search rules (resolv.conf(5))", () => {
  const rows: [resolvConf: string, host: string, asked: string[]][] = [
    ["", "client.example", ["client.example"]],
    ["search corp.example", "client", ["client.corp.example", "client"]],
    ["domain corp.example", "client", ["client.corp.example", "client"]],
    ["search corp.example", "client.example", ["client.example", "client.example.corp.example"]],
    ["search corp.example", "client.example.", ["client.example"]],
    ["search a.example b.example.", "client", ["client.a.example", "client.b.example", "client"]],
    ["search a.example\ndomain b.example", "client", ["client.b.example", "client"]],
    [
      "nameserver 192.0.2.53\nsearch ns.svc.cluster.local svc.cluster.local\noptions timeout:1 ndots:5\noptions rotate",
      "client.example",
      ["client.example.ns.svc.cluster.local", "client.example.svc.cluster.local", "client.example"],
    ],
    ["search corp.example\noptions ndots:0", "client", ["client", "client.corp.example"]],
    ["# search x.example\n; search y.example\n search corp.example", "client", ["client.corp.example", "client"]],
  ];
  for (const [resolvConf, host, asked] of rows) {
    test(`${JSON.stringify(resolvConf)}: ${host} is asked for as ${asked.join(", ")}`, async (t) => {
      const { addresses, server } = await system(t, { resolvConf });
      await assert.rejects(addresses(host), { code: "ENOTFOUND" });
      assert.deepEqual(names(server), asked);
    });
  }

  test("end with the first name that has an address", async (t) => {
    const answers = { "client.a.example": ["192.0.2.1"], "client.b.example": ["192.0.2.2"] };
    const { addresses, server } = await system(t, { resolvConf: "search x.example a.example b.example", answers });
    assert.deepEqual(await addresses("client"), ["192.0.2.1"]);
    assert.deepEqual(names(server), ["client.x.example", "client.a.example"]);
  });

  test("end with a failure: what is behind it might be another host", async (t) => {
    const answers = { "client.a.example": 2, "client.b.example": ["192.0.2.2"] };
    const { addresses } = await system(t, { resolvConf: "search a.example b.example", answers });
    await assert.rejects(addresses("client"), { code: "ESERVFAIL" });
  });
});

for (const host of ["localhost", "LOCALHOST", "localhost.", "x.localhost"]) {
  test(`${host} is loopback, and DNS is not asked (RFC 6761 section 6.3)`, async (t) => {
    const { addresses, server } = await system(t, {});
    assert.deepEqual(await addresses(host), ["127.0.0.1", "::1"]);
    assert.deepEqual(server.questions, []);
  });
}

describe("a name server that is silent", () => {
  test("is left when the signal aborts, with its reason, and no name is asked for any more", async (t) => {
    const { resolve, server } = await system(t, {
      resolvConf: "search a.example b.example",
      answers: { "client.a.example": "silence" },
    });
    const aborting = new AbortController();
    const looking = resolve("client", { signal: aborting.signal });
    while (server.questions.length < 2) await new Promise(setImmediate);
    aborting.abort(new Error("enough"));
    await assert.rejects(looking, { message: "enough" });
    // Each type once: by itself the resolver asks again after 2 s, and only then gives up.
    assert.deepEqual(server.questions.toSorted(), ["client.a.example A", "client.a.example AAAA"]);
    await assert.rejects(resolve("client", { signal: aborting.signal }), { message: "enough" });
  });

  test("holds no thread: another lookup of the process is not kept waiting by many", async (t) => {
    const { resolve, server } = await system(t, { answers: { "client.example": "silence" } });
    const aborting = new AbortController();
    const looking = Promise.allSettled(
      Array.from({ length: 20 }, () => resolve("client.example", { signal: aborting.signal })),
    );
    while (server.questions.length < 40) await new Promise(setImmediate);
    let over = false;
    void looking.then(() => (over = true));
    assert.ok((await lookup("localhost")).address);
    assert.equal(over, false);
    aborting.abort();
    await looking;
  });

  test("costs a token 5 s, by the clock of the verifier, and the lookup ends with them", async (t) => {
    const { resolve, server } = await system(t, { answers: { "client.example": "silence" } });
    const clock = simulatedClock();
    const ended = Promise.withResolvers<unknown>();
    const fetch = createGuardedFetch({
      async resolve(host, options) {
        const looking = resolve(host, options);
        looking.then(ended.resolve, ended.resolve);
        return looking;
      },
    });
    const { clientAssertion } = verifier({ clock, fetch });
    const token = tokenOf("clientAssertion", { exp: clock.now() / 1000 + 60 });
    const checking = verdict(clientAssertion(token, { clientId, jwksUri: "https://client.example/jwks" }));
    while (server.questions.length === 0) await new Promise(setImmediate);
    await clock.advance(5_000);
    assert.equal(await checking, "ERR_FETCH_TIMEOUT");
    assert.equal(((await ended.promise) as { code?: string }).code, "ERR_FETCH_TIMEOUT");
  });
});

test("addresses from DNS must be public as all others", async (t) => {
  const { resolve, server } = await system(t, {
    answers: { "client.example": ["198.51.100.1"], "mixed.example": ["8.8.8.8", "::1"] },
  });
  const fetch = createGuardedFetch({ resolve });
  for (const host of ["client.example", "mixed.example"])
    assert.equal(await verdict(fetch(`https://${host}/`, {})), "ERR_ADDRESS_FORBIDDEN");
  assert.deepEqual(names(server), ["client.example", "mixed.example"]);
});

test("more lookups under way than 500 are refused, and ended ones make room", async () => {
  const waiting: (() => void)[] = [];
  const fetch = createGuardedFetch({
    resolve: async () => {
      await new Promise<void>((resolve) => waiting.push(resolve));
      return [];
    },
  });
  const look = () => verdict(fetch("https://client.example/", {}));
  const looks = Array.from({ length: 500 }, look);
  await assert.rejects(fetch("https://client.example/", {}), {
    code: "ERR_FETCH_BUSY",
    retryable: true,
    retryAfterSeconds: 1,
  });
  assert.equal(await verdict(fetch("https://127.0.0.1/", {})), "ERR_ADDRESS_FORBIDDEN");
  waiting.splice(0).forEach((end) => end());
  assert.deepEqual(new Set(await Promise.all(looks)), new Set(["ERR_ADDRESS_FORBIDDEN"]));
  const last = look();
  waiting.splice(0).forEach((end) => end());
  assert.equal(await last, "ERR_ADDRESS_FORBIDDEN");
});
