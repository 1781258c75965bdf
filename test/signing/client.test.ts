import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { type Server, createServer } from "node:http";
import type { Socket } from "node:net";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { type SignClient, createSignClient } from "../../src/sign/client/index.ts";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { verify } from "../../src/verify/token/verify.ts";
import { endless } from "../support/endless.ts";
import { startService, temporaryFolder } from "../support/service.ts";

const minute = { lifetimeSeconds: 60 };

async function pathIn(t: TestContext): Promise<string> {
  return join(await temporaryFolder(t), "s");
}

function clientOf(t: TestContext, socket: string, timeoutMs?: number): SignClient {
  const client = createSignClient({ socket, timeoutMs });
  t.after(() => client.close());
  return client;
}

async function serve(t: TestContext, path: string, server: Server): Promise<Server> {
  server.listen(path);
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return server;
}

describe("a client of a sign socket", () => {
  test("signs like a provider and throws the same errors", async (t) => {
    const folder = await temporaryFolder(t);
    const [socket, file] = [join(folder, "s"), join(folder, "sockets.json")];
    await writeFile(file, JSON.stringify({ [socket]: { audiences: ["api"] } }));
    const service = await startService(t, ["--data", join(folder, "data"), "--sign-config", file]);
    const tokens = clientOf(t, socket);
    const claims = { aud: "api", sub: "älice" };
    const signed = await Promise.all(
      Array.from({ length: 40 }, () => tokens.sign(claims, { ...minute, typ: "at+jwt", header: { cty: "x" } })),
    );
    const issuer = new URL(service.jwksUri).origin;
    const keys = createRemoteKeySet({ issuer, allowInsecure: true });
    const rules = { keys, issuer, audience: "api", typ: "at+jwt", algorithms: ["ES256"] };
    for (const token of signed) assert.equal((await verify(token, rules)).claims.sub, "älice");
    const codes: Readonly<Record<string, () => Promise<string>>> = {
      ERR_CLAIMS_INVALID: () => tokens.sign({ aud: "api", exp: 1 }, minute),
      ERR_CLAIMS_FORBIDDEN: () => tokens.sign({ aud: "else" }, minute),
      ERR_OPTION_UNKNOWN: () => tokens.sign(claims, { ...minute, lifetime: 1 } as typeof minute),
      ERR_SIGNER_ABORTED: () => tokens.sign(claims, { ...minute, signal: AbortSignal.abort() }),
    };
    for (const [code, sign] of Object.entries(codes)) await assert.rejects(sign(), { code });
    const notPlainJson: readonly [claims: unknown, options?: object][] = [
      [{ aud: "api", id: 1n }],
      [Promise.resolve(claims)],
      [new Map([["aud", "api"]])],
      [{ ...claims, toJSON: () => ({ sub: "bob" }) }],
      [claims, { header: new Map() }],
      [claims, { signal: {} }],
    ];
    for (const [given, more] of notPlainJson)
      await assert.rejects(tokens.sign(given as typeof claims, { ...minute, ...more }), { code: "ERR_CLAIMS_INVALID" });
  });

  test("reports a socket that is unavailable or does not respond, and recovers when the socket works again", async (t) => {
    const socket = await pathIn(t);
    const tokens = clientOf(t, socket);
    await assert.rejects(tokens.sign({}, minute), { code: "ERR_SIGNER_UNAVAILABLE", retryable: true });
    const silent = await serve(
      t,
      socket,
      createServer(() => {}),
    );
    const hasty = clientOf(t, socket, 10);
    await assert.rejects(hasty.sign({}, minute), { code: "ERR_SIGNER_TIMEOUT", retryable: true });
    silent.closeAllConnections();
    silent.close();
    await once(silent, "close");
    await serve(
      t,
      socket,
      createServer((_request, response) => response.end("token")),
    );
    assert.equal(await tokens.sign({}, minute), "token");
  });

  test("retries if the server resets an idle connection", async (t) => {
    const socket = await pathIn(t);
    let requests = 0;
    const answer = createServer((request, response) => {
      requests += 1;
      // The second request finds its connection reset.
      if (requests === 2) request.socket.destroy();
      else response.end("token");
    });
    await serve(t, socket, answer);
    const tokens = clientOf(t, socket);
    assert.deepEqual([await tokens.sign({}, minute), await tokens.sign({}, minute), requests], ["token", "token", 3]);
  });

  test("retries if the server has closed an idle connection and the client has not noticed", async (t) => {
    const socket = await pathIn(t);
    const answer = createServer((request, response) => void request.resume().on("end", () => response.end("token")));
    const connections: Socket[] = [];
    answer.on("connection", (connection) => connections.push(connection));
    await serve(t, socket, answer);
    const tokens = clientOf(t, socket);
    assert.equal(await tokens.sign({}, minute), "token");
    // The client writes in the same turn of the event loop, so it gets EPIPE.
    connections[0]?.destroy();
    assert.equal(await tokens.sign({}, minute), "token");
    assert.equal(connections.length, 2);
  });

  test("refuses a response that does not come from a sign socket", async (t) => {
    const socket = await pathIn(t);
    await serve(
      t,
      socket,
      createServer((_request, response) => response.writeHead(502).end("<html>")),
    );
    await assert.rejects(clientOf(t, socket).sign({}, minute), {
      code: "ERR_SIGNER_UNAVAILABLE",
      message: /responded with status 502/,
    });
  });

  test("stops reading a response that does not end, and shortens a long error", async (t) => {
    const endlessSocket = await pathIn(t);
    const server = await endless(t);
    await serve(t, endlessSocket, createServer(server.answer));
    await assert.rejects(clientOf(t, endlessSocket).sign({}, minute), {
      code: "ERR_SIGNER_UNAVAILABLE",
      message: /: the response is too large$/,
    });
    assert.ok(server.sent < 10_000_000, `${server.sent} bytes`);
    const socket = await pathIn(t);
    const problem = { code: "ERR_CLAIMS_INVALID", detail: "x".repeat(100_000) };
    await serve(
      t,
      socket,
      createServer((_request, response) => response.writeHead(400).end(JSON.stringify(problem))),
    );
    const error = await clientOf(t, socket)
      .sign({}, minute)
      .catch((error: Error) => error);
    assert.ok(error instanceof Error && error.message.length < 800);
  });

  test("rejects invalid options", () => {
    assert.throws(() => createSignClient({}), { code: "ERR_OPTION_INVALID" });
  });
});
