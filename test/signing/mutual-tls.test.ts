import assert from "node:assert/strict";
import { once } from "node:events";
import { rm, writeFile } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { connect } from "node:net";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { type ConnectionOptions, type TLSSocket, connect as connectTls } from "node:tls";
import { decodeJwt } from "jose";
import { createSignClient } from "../../src/sign/client/index.ts";
import { type Certificate, certificateFor, certificateUntil } from "../client/certificate.ts";
import { Client } from "../support/load.ts";
import { freePort, startService, temporaryFolder } from "../support/service.ts";
import { requestText, signText } from "../support/sign-socket.ts";
import type { WireReply } from "../support/wire.ts";

// Each of these certificates is its own authority.
const server = certificateFor("localhost");
const client = certificateFor("web");
const expired = certificateUntil("210101000000Z", "web");
const stranger = certificateFor("web");
const minute = { lifetimeSeconds: 60 };

interface Files {
  readonly "tls.crt"?: string;
  readonly "tls.key"?: string;
  readonly "ca.crt"?: string;
}

async function tlsFolder(t: TestContext, files: Files = {}): Promise<string> {
  const folder = await temporaryFolder(t);
  const all = { "tls.crt": server.cert, "tls.key": server.key, "ca.crt": client.cert + expired.cert, ...files };
  for (const [name, text] of Object.entries(all)) await writeFile(join(folder, name), text);
  return folder;
}

async function startAt(t: TestContext, address: string, members: object) {
  const folder = await temporaryFolder(t);
  const file = join(folder, "sockets.json");
  await writeFile(file, JSON.stringify({ [address]: members }));
  const args = ["--data", join(folder, "data"), "--sign-config", file];
  return { address, service: await startService(t, args) };
}

const startWith = async (t: TestContext, tls: string) => startAt(t, `localhost:${await freePort()}`, { tls });

/** Opens a connection to the address. */
function peerOf(t: TestContext, address: string, options: ConnectionOptions): Client {
  const port = Number(address.split(":")[1]);
  const peer = new Client(connectTls({ port, host: "localhost", ca: server.cert, ...options }));
  t.after(() => peer.close());
  return peer;
}

/** Returns the status of one request, or the error code. */
async function ask(address: string, options: https.RequestOptions): Promise<string> {
  const request = https.request(`https://${address}/keys`, { ca: server.cert, agent: false, ...options });
  try {
    const [response] = (await once(request.end(), "response")) as [http.IncomingMessage];
    response.resume();
    return String(response.statusCode);
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
}

describe("a TLS address for signing tokens", () => {
  test("accepts only clients with a certificate from the CA", async (t) => {
    const { address } = await startWith(t, await tlsFolder(t));
    assert.equal(await ask(address, client), "200");
    const refused: Readonly<Record<string, https.RequestOptions>> = {
      "no certificate": {},
      "a certificate from another CA": stranger,
      "an expired certificate": expired,
      "TLS 1.2": { ...client, maxVersion: "TLSv1.2" },
    };
    for (const [what, options] of Object.entries(refused)) {
      assert.match(await ask(address, options), /^(?:ERR_SSL_.*(?:ALERT|VERSION).*|ECONNRESET|EPROTO)$/, what);
    }
    const plain = http.get(`http://${address}/keys`, { agent: false });
    await assert.rejects(once(plain, "response"));
    assert.equal(await ask(address, client), "200");
  });

  test("does not resume sessions, with or without a certificate", async (t) => {
    const { address } = await startWith(t, await tlsFolder(t));
    const sessions: Buffer[] = [];
    const open = (more: ConnectionOptions): Client => {
      const peer = peerOf(t, address, more);
      peer.socket.on("session", (session: Buffer) => sessions.push(session));
      return peer;
    };
    await open(client).request(requestText("GET", "/keys"));
    // TLS 1.3 emits a session as it begins, possibly without a ticket.
    for (const session of sessions.splice(0)) {
      const again = open({ session, ...client });
      await again.request(requestText("GET", "/keys"));
      assert.equal((again.socket as TLSSocket).isSessionReused(), false);
      await assert.rejects(open({ session }).request(requestText("GET", "/keys")));
    }
  });

  test("ends a connection when the client certificate expires", async (t) => {
    const endMs = Math.ceil(Date.now() / 1000 + 3) * 1000;
    const brief = certificateUntil(`${new Date(endMs).toISOString().replace(/\D/g, "").slice(2, 14)}Z`, "web");
    const { address } = await startWith(t, await tlsFolder(t, { "ca.crt": brief.cert }));
    const peer = peerOf(t, address, brief);
    assert.equal((await peer.request(signText({ claims: {}, ...minute }))).status, 200);
    await once(peer.socket, "close");
    assert.ok(Date.now() >= endMs, `${Date.now() - endMs} ms after`);
  });

  test("accepts clients despite connections that send nothing", async (t) => {
    const { address } = await startWith(t, await tlsFolder(t));
    const [, port] = address.split(":");
    const silent = Array.from({ length: 1_100 }, () =>
      connect(Number(port), "localhost")
        .on("error", () => {})
        .resume(),
    );
    t.after(() => silent.forEach((socket) => socket.destroy()));
    await Promise.all(silent.map((socket) => once(socket, "connect")));
    assert.equal(await ask(address, client), "200");
    const closed = silent.filter(({ destroyed }) => destroyed).length;
    assert.ok(closed >= 100, `${closed} were closed to free slots`);
    for (let count = 0; count < 20; count += 1) assert.equal(await ask(address, client), "200");
  });

  test("while stopping, serves busy connections and closes idle ones", async (t) => {
    const { address, service } = await startWith(t, await tlsFolder(t));
    const [busy, idle] = [peerOf(t, address, client), peerOf(t, address, client)];
    const text = signText({ claims: {}, ...minute });
    for (let time = 1; time <= 3; time += 1) for (const peer of [busy, idle]) await peer.request(text);
    const stopped = service.stop();
    let last: WireReply;
    do last = await busy.request(text);
    while (last.headers["connection"] === "keep-alive");
    assert.deepEqual([last.status, last.headers["connection"]], [200, "close"]);
    await once(idle.socket, "close");
    assert.equal(await stopped, 0);
  });

  test("signs for the client, and the client reports certificates that do not match", async (t) => {
    const { address } = await startWith(t, await tlsFolder(t));
    const clientOf = (own: Certificate, at: string = address, ca: string = server.cert) => {
      const made = createSignClient({ address: at, ...own, ca });
      t.after(() => made.close());
      return made;
    };
    const tokens = clientOf(client);
    for (const sub of ["a", "b"]) assert.equal(decodeJwt(await tokens.sign({ sub }, minute)).sub, sub);
    await assert.rejects(tokens.sign({ exp: 1 }, minute), { code: "ERR_CLAIMS_INVALID" });
    const unauthorized = { code: "ERR_SIGNER_UNAUTHORIZED", message: /a certificate was not accepted/ };
    await assert.rejects(clientOf(client, address, stranger.cert).sign({}, minute), unauthorized);
    // The certificate names localhost.
    const otherHost = clientOf(client, address.replace("localhost", "127.0.0.1"));
    await assert.rejects(otherHost.sign({}, minute), unauthorized);
    for (const options of [{}, { address }, { address, socket: "s", ...client, ca: server.cert }, { address: "x" }]) {
      assert.throws(() => createSignClient(options), { code: "ERR_OPTION_INVALID" });
    }
  });

  test("uses new certificates for new connections and rejects invalid certificates", async (t) => {
    const folder = await tlsFolder(t);
    const { address, service } = await startWith(t, folder);
    await writeFile(join(folder, "ca.crt"), "none");
    await service.logged(({ msg }) => /^the old certificates remain in use, .*ca\.crt must be a certificate/.test(msg));
    assert.equal(await ask(address, client), "200");
    await writeFile(join(folder, "ca.crt"), stranger.cert);
    await service.logged(({ msg }) => msg === "certificates reloaded");
    assert.equal(await ask(address, stranger), "200");
    assert.notEqual(await ask(address, client), "200");
  });

  test("has its own policy, just like a socket", async (t) => {
    const [folder, address] = [await tlsFolder(t), `localhost:${await freePort()}`];
    const file = join(await temporaryFolder(t), "sockets.json");
    await writeFile(file, JSON.stringify({ [address]: { tls: folder, audiences: ["api"] } }));
    await startService(t, ["--data", join(await temporaryFolder(t), "data"), "--sign-config", file]);
    const tokens = createSignClient({ address, ...client, ca: server.cert });
    t.after(() => tokens.close());
    await tokens.sign({ aud: "api" }, minute);
    await assert.rejects(tokens.sign({ aud: "else" }, minute), { code: "ERR_CLAIMS_FORBIDDEN" });
  });
});

describe("the service refuses to start with", () => {
  const files: Readonly<Record<string, readonly [Files, RegExp]>> = {
    "the key of another certificate": [{ "tls.key": client.key }, /tls\.key does not match .*tls\.crt/],
    "no key": [{ "tls.key": "" }, /tls\.key must be a private key/],
    "no certificate": [{ "tls.crt": server.key }, /tls\.crt must be a certificate/],
    "an empty CA file, which would admit every public CA": [{ "ca.crt": "" }, /ca\.crt must be a certificate/],
  };
  for (const [name, [changed, message]] of Object.entries(files)) {
    test(name, async (t) => assert.rejects(startWith(t, await tlsFolder(t, changed)), message));
  }

  test("a missing file", async (t) => {
    const folder = await tlsFolder(t);
    await rm(join(folder, "tls.crt"));
    await assert.rejects(startWith(t, folder), /cannot read .*tls\.crt \(ENOENT\)/);
  });

  const sockets: Readonly<Record<string, readonly [address: string, members: object, message: RegExp]>> = {
    "a network address": ["10.0.0.1:9", { tls: "x" }, /must be a loopback address/],
    "all addresses": ["0.0.0.0:9", { tls: "x" }, /must be a loopback address/],
    "an address without certificates": ["127.0.0.1:9", {}, /has no certificates/],
    "certificates for a Unix socket": ["/run/x.sock", { tls: "x" }, /is only for HOST:PORT addresses/],
  };
  for (const [name, [address, members, message]] of Object.entries(sockets)) {
    test(name, async (t) => assert.rejects(startAt(t, address, members), message));
  }
});
