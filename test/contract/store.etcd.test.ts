import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { type ServerResponse, createServer } from "node:http";
import { text } from "node:stream/consumers";
import { after, test } from "node:test";
import { type EtcdStoreOptions, etcdStore } from "../../src/rotation/store/databases/etcd.ts";
import { defineRegisterTests } from "../../src/testing/register-tests.ts";
import { endless } from "../support/endless.ts";
import { startEtcd } from "../support/etcd.ts";
import { checkSample, networkFaults, serverFaults, throughNetwork } from "../support/faults.ts";
import { listening } from "../support/listening.ts";
import { skipWithout } from "../support/parts.ts";
import { type Scope, eventually } from "../support/service.ts";

const urlOf = (port: number): string => `http://127.0.0.1:${port}`;
const base64 = (text: string): string => Buffer.from(text).toString("base64");
const op = (more: Partial<EtcdStoreOptions> = {}): EtcdStoreOptions => ({
  issuer: `https://op.example/${randomUUID()}`,
  ...more,
});

/** A function that reports an etcd error as a gateway does. In etcd 3.4, an error has `error` and `message`. */
type Reports = (response: ServerResponse, status: number, error: { readonly message?: string }) => void;
const gateways: Readonly<Record<string, Reports>> = {
  "etcd 3.4": (response, status, error) => response.writeHead(status).end(JSON.stringify(error)),
  "etcd 3.6, whose errors have no `error`": (response, status, { message }) =>
    response.writeHead(status).end(JSON.stringify({ code: 16, message, details: [] })),
  "a gateway that returns its own 401": (response, status) => response.writeHead(status).end("Unauthorized"),
  "a gateway that closes the connection instead of returning 401": (response) => response.destroy(),
};

/** Starts a gateway to a member. @param reports how it reports errors @returns its port */
function gateway(t: Scope, member: string, reports: Reports): Promise<number> {
  const server = createServer(async (request, response) => {
    const { authorization, "content-type": type = "" } = request.headers;
    const headers = { "Content-Type": type, ...(authorization !== undefined && { authorization }) };
    const answer = await fetch(`${member}${request.url}`, { method: "POST", headers, body: await text(request) });
    const body = await answer.text();
    if (answer.ok) response.writeHead(200, { Date: answer.headers.get("Date") ?? "" }).end(body);
    else reports(response, answer.status, JSON.parse(body) as { message?: string });
  });
  return listening(t, server);
}

if (skipWithout("etcd") === false) {
  const members = await startEtcd({ after });
  const urls = members.map(({ daemon }) => urlOf(daemon.port));
  const [one, ...others] = members as [(typeof members)[0], ...typeof members];
  const ready = etcdStore(urls, op());
  await eventually("etcd has a leader", () =>
    ready.read().then(
      () => true,
      () => false,
    ),
  );

  const open = throughNetwork(one.daemon.port, (port, options) => etcdStore([urlOf(port), ...urls.slice(1)], options));
  const during = base64("during");
  defineRegisterTests("etcd with three members", open, {
    ...networkFaults(during),
    ...serverFaults(during, one.daemon),
    "a member is cut off": async () => {
      one.peers.silence();
      return async () => one.peers.restore();
    },
  });

  test("members that cannot reach each other, including the former leader, refuse reads", async () => {
    const alone = urls.map((url) => etcdStore(url, op({ timeoutMs: 2_000 })));
    for (const { peers } of members) peers.silence();
    const outcomes = await Promise.allSettled(alone.map((register) => register.read()));
    for (const { peers } of members) peers.restore();
    for (const outcome of outcomes) assert.ok(outcome.status === "rejected");
    await eventually("etcd has a leader again", () =>
      Promise.all(alone.map((register) => register.read())).then(
        () => true,
        () => false,
      ),
    );
  });

  test("a user with a password can still use the store after their token expires, however etcd reports the expiration", async (t) => {
    const { port } = one.daemon;
    let token = "";
    const admin = async (path: string, body: object): Promise<string> => {
      const init = {
        method: "POST",
        headers: token === "" ? {} : { Authorization: token },
        body: JSON.stringify(body),
      };
      const response = await fetch(`${urlOf(port)}/v3/auth/${path}`, init);
      assert.ok(response.ok, `${path}: ${await response.clone().text()}`);
      return ((await response.json()) as { token?: string }).token ?? "";
    };
    for (const name of ["root", "jwksd"]) await admin("user/add", { name, password: "s3cret:@" });
    await admin("role/add", { name: "root" });
    await admin("role/add", { name: "jwksd" });
    const perm = { permType: "READWRITE", key: base64("jwksd/"), range_end: base64("jwksd0") };
    await admin("role/grant", { name: "jwksd", perm });
    for (const name of ["root", "jwksd"]) await admin("user/grant", { user: name, role: name });
    await admin("enable", {});
    token = await admin("authenticate", { name: "root", password: "s3cret:@" });
    t.after(async () => {
      token = await admin("authenticate", { name: "root", password: "s3cret:@" });
      await admin("disable", {});
    });
    const refused = etcdStore(urls, op());
    await assert.rejects(refused.write("text", undefined), { code: "ERR_STORE_UNAVAILABLE" });
    const wrong = etcdStore(urlOf(port).replace("//", "//jwksd:wr0ng@"), op());
    const error = await wrong.read().catch((error: unknown) => error);
    assert.match(String(error), /authentication failed/);
    assert.doesNotMatch(String(error), /wr0ng/);
    const stores = await Promise.all(
      Object.entries(gateways).map(async ([name, reports]) => {
        const url = urlOf(await gateway(t, urlOf(port), reports));
        return { name, store: etcdStore(url.replace("//", `//jwksd:${encodeURIComponent("s3cret:@")}@`), op()) };
      }),
    );
    for (const { name, store } of stores) assert.equal(await store.write("text", undefined), true, name);
    // All tokens expire.
    await admin("disable", {});
    token = "";
    await admin("enable", {});
    for (const { name, store } of stores) {
      // A closed connection may have other causes, so only the next call has a new token.
      if (name.includes("closes")) await assert.rejects(store.read(), { code: "ERR_STORE_UNAVAILABLE" });
      assert.equal((await store.read()).text, "text", name);
    }
  });

  test("if one of three members stops, the others continue; if two stop, reads fail", async (t) => {
    const all = etcdStore(urls, op({ timeoutMs: 3_000 }));
    await one.daemon.kill();
    t.after(async () => {
      for (const { daemon } of members) await daemon.kill();
      await Promise.all(members.map(({ daemon }) => daemon.start()));
    });
    await eventually("a write", () => all.write("text", undefined).catch(() => false));
    assert.equal((await all.read()).text, "text");
    await others[0]?.daemon.kill();
    const error = await all.read(undefined, { confirmed: true }).then(
      () => assert.fail("it did not refuse"),
      (error: unknown) => error,
    );
    assert.equal((error as { code?: string }).code, "ERR_STORE_UNAVAILABLE");
  });

  checkSample("examples/docs/store-etcd.mts", () =>
    Object.fromEntries(["a", "b", "c"].map((name, index) => [`https://${name}.example:2379`, urls[index] ?? ""])),
  );
}

test("stops reading an endless response, and shortens a long error message", async (t) => {
  const server = await endless(t);
  const store = etcdStore(urlOf(server.port), op());
  for (const call of [() => store.read(), () => store.presence?.list(1), () => store.write("text", undefined)])
    await assert.rejects(async () => call(), /the response is larger than 4194304 bytes/);
  assert.ok(server.sent < 40_000_000, `${server.sent} bytes`);
  const failing = createServer((_, response) =>
    response.writeHead(503).end(JSON.stringify({ code: 14, message: `down\u{202e}${"x".repeat(3_000_000)}` })),
  );
  const error = await etcdStore(urlOf(await listening(t, failing)), op())
    .read()
    .catch((error: Error) => error);
  assert.ok(error instanceof Error && error.message.length < 800);
  assert.match(error.message, /\(503\): it reports "down\\\\u\{202e\}x+…"/);
});

test("never mistakes a response that is not from etcd for an empty store or a successful write", async (t) => {
  let [body, headers]: [unknown, Record<string, string>] = [{}, {}];
  const server = createServer((_, response) => response.writeHead(200, headers).end(JSON.stringify(body)));
  const store = etcdStore(urlOf(await listening(t, server)), op());
  const header = { cluster_id: "1", member_id: "1", revision: "1", raft_term: "1" };
  const range = (kvs?: unknown) => ({
    header,
    responses: [{ response_range: { header, kvs } }, { response_range: { header } }],
  });
  const read = () => store.read();
  const list = async () => store.presence?.list(9);
  const write = () => store.write("text", undefined);
  const put = async () => store.presence?.put("id", "record");

  const foreign = [
    {},
    [],
    5,
    true,
    null,
    "ok",
    { header: null },
    { header: 5 },
    { succeeded: true },
    { error: "no leader" },
  ];
  const malformed = [
    null,
    [null],
    5,
    [{ key: 1234 }],
    [{ key: "YQ==", value: 1234 }],
    [{ key: "YQ==", value: "ü" }],
    [{ key: "YQ==", value: null }],
  ];
  const rows: [body: unknown, calls: (() => Promise<unknown>)[]][] = [
    ...foreign.map((body): (typeof rows)[0] => [body, [read, list, write, put]]),
    ...malformed.flatMap((kvs): typeof rows => [
      [range(kvs), [read]],
      [{ header, kvs }, [list]],
    ]),
    ...[
      undefined,
      null,
      [],
      [null],
      [{}],
      [{ response_range: null }],
      [{ response_range: {} }],
      [{ response_range: { header } }],
    ].map((responses): (typeof rows)[0] => [{ header, responses }, [read]]),
  ];
  for (const [given, calls] of rows) {
    body = given;
    for (const call of calls) {
      const { code, message } = (await call().then(
        (value) => assert.fail(`${JSON.stringify(given)} is ${JSON.stringify(value)} to ${call.name}`),
        (error: unknown) => error,
      )) as Error & { code?: string };
      const isWrite = call === write || call === put;
      assert.equal(code, isWrite ? undefined : "ERR_STORE_UNAVAILABLE", message);
      assert.match(message, /it reports "(the response is (not from etcd|incomplete)|no leader)"/);
    }
  }
  body = range();
  assert.equal((await read()).version, undefined);
  for (const Date of ["1", "2026", "", "2026-01-01T00:00:00Z"]) {
    headers = { Date };
    await assert.rejects(read(), { code: "ERR_STORE_UNAVAILABLE", message: /no valid Date/ }, Date);
  }
});

test("reports an error response's message or, if there is no message, its error member, provided that the member is a string", async (t) => {
  let body: unknown;
  const server = createServer((_, response) => response.writeHead(503).end(JSON.stringify(body)));
  const store = etcdStore(urlOf(await listening(t, server)), op());
  for (const [given, shown] of [
    [{ message: "down", error: "other" }, "down"],
    [{ message: "", error: "down" }, "down"],
    [{ error: { message: "down" } }, "the response is not from etcd"],
    [{ message: 5 }, "the response is not from etcd"],
    [null, "the response is not from etcd"],
  ] as const) {
    body = given;
    await assert.rejects(store.read(), new RegExp(`\\(503\\): it reports "${shown}"`), JSON.stringify(given));
  }
});
