// Requests to the gRPC server that no gRPC client library sends.

import assert from "node:assert/strict";
import { once } from "node:events";
import { type ClientHttp2Session, connect as connectHttp2, constants } from "node:http2";
import { type Socket, connect } from "node:net";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { CallError, createGrpcServer } from "../../src/service/signing/grpc.ts";
import { bytesField, numberField, readFields, stringField } from "../../src/service/signing/protobuf.ts";
import { callGrpc as call, frame, openSession } from "../support/grpc.ts";
import { temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";

const hello = Buffer.from("hello");

const toCallError = (error: unknown) => new CallError("internal", (error as Error).message);

/** Starts an echo server and opens a session to it. */
async function start(
  t: TestContext,
  callMs?: number,
): Promise<{ path: string; session: ClientHttp2Session; stop(this: void): Promise<void> }> {
  const path = join(await temporaryFolder(t), "s");
  const methods = {
    "/Echo": async (message: Uint8Array) => message,
    "/Fail": async () => {
      throw new Error("50 % ü\n");
    },
    "/Never": () => new Promise<Uint8Array>(() => {}),
  };
  const { server, stop } = createGrpcServer(methods, toCallError, callMs);
  server.listen(path);
  await once(server, "listening");
  t.after(stop);
  return { path, session: openSession(t, path), stop };
}

describe("a gRPC server", () => {
  test("replies to one message with one message", async (t) => {
    const { session } = await start(t);
    for (const type of ["application/grpc", "application/grpc+proto"]) {
      const answer = await call(session, "/Echo", frame(hello), { "content-type": type });
      assert.deepEqual(answer, { http: 200, grpc: "0", message: undefined, body: "hello" });
    }
  });

  test("reports an invalid call and keeps serving", async (t) => {
    const { session } = await start(t);
    const rows: readonly (readonly [path: string, body: Uint8Array, grpc: string])[] = [
      ["/Nowhere", frame(hello), "12"],
      ["/toString", frame(hello), "12"],
      ["/Echo", frame(hello, 1), "12"],
      ["/Echo", frame(hello, 0, 6), "13"],
      ["/Echo", Buffer.concat([frame(hello), frame(hello)]), "13"],
      ["/Echo", Buffer.alloc(0), "13"],
      ["/Echo", frame(Buffer.alloc(70_000)), "8"],
      ["/Echo", frame(hello), "0"],
    ];
    for (const [path, body, grpc] of rows)
      assert.equal((await call(session, path, body)).grpc, grpc, `${path} ${grpc}`);
    assert.equal((await call(session, "/Fail", frame(hello))).message, "50 %25 %C3%BC%0A");
    const notGrpc = await call(session, "/Echo", frame(hello), { "content-type": "application/json" });
    assert.deepEqual([notGrpc.http, notGrpc.grpc], [415, undefined]);
  });

  test("ends a call at the caller's deadline, whatever its unit, and ignores an invalid deadline", async (t) => {
    const { session } = await start(t);
    for (const deadline of ["20m", "20000u", "20000000n", "0H", "0M", "0S"]) {
      const { grpc } = await call(session, "/Never", frame(hello), { "grpc-timeout": deadline });
      assert.equal(grpc, "4", deadline);
    }
    for (const wrong of ["", "1", "-1m", "0x", "000000000m", "99999999H"]) {
      assert.equal((await call(session, "/Echo", frame(hello), { "grpc-timeout": wrong })).body, "hello", wrong);
    }
  });

  test("ends a call whose request never completes or whose reply is never read", async (t) => {
    const { session, path, stop } = await start(t, 300);
    const incomplete = session.request({ ":method": "POST", ":path": "/Echo", "content-type": "application/grpc" });
    incomplete.write(frame(hello).subarray(0, 7));
    const [headers] = (await once(incomplete, "response")) as [Record<string, string>];
    assert.equal(headers["grpc-status"], "4");
    // The window is empty, so the reply waits for room.
    const nonReading = connectHttp2("http://localhost", {
      createConnection: () => connect({ path }),
      settings: { initialWindowSize: 0 },
    });
    t.after(() => nonReading.destroy());
    const unread = nonReading.request({ ":method": "POST", ":path": "/Echo", "content-type": "application/grpc" });
    unread.on("error", () => {}).end(frame(hello));
    await once(unread, "close");
    assert.equal(unread.rstCode, 8);
    assert.equal((await call(session, "/Echo", frame(hello))).body, "hello");
    await stop();
  });

  test("immediately rejects requests that are not gRPC", async (t) => {
    const { session } = await start(t);
    const stream = session.request({ ":method": "POST", ":path": "/Echo", "content-type": "application/json" });
    const [headers, flags] = (await once(stream, "response")) as [Record<string, unknown>, number];
    assert.equal(headers[":status"], 415);
    assert.ok(flags & constants.NGHTTP2_FLAG_END_STREAM);
    stream.close();
  });

  test("ends connections that send nothing and connections that never make a call", async (t) => {
    const { path, session } = await start(t, 300);
    assert.equal((await call(session, "/Echo", frame(hello))).body, "hello");
    const silent = connect({ path }).resume();
    const withoutCalls = openSession(t, path);
    await Promise.all([once(silent, "close"), once(withoutCalls, "close")]);
    assert.equal((await call(session, "/Echo", frame(hello))).body, "hello");
  });

  test("serves new and existing callers while more than 64 connections send nothing", async (t) => {
    const { path, session } = await start(t);
    assert.equal((await call(session, "/Echo", frame(hello))).body, "hello");
    const silent: Socket[] = [];
    t.after(() => silent.forEach((socket) => socket.destroy()));
    let closed = 0;
    for (let count = 0; count < 80; count += 1) {
      const socket = connect({ path }).resume();
      socket.on("error", () => {}).once("close", () => (closed += 1));
      silent.push(socket);
      await once(socket, "connect");
    }
    for (let count = 0; count < 3; count += 1) {
      assert.equal((await call(openSession(t, path), "/Echo", frame(hello))).body, "hello");
    }
    assert.equal((await call(session, "/Echo", frame(hello))).body, "hello");
    assert.equal(closed, 1 + 80 + 3 - 64);
    assert.ok(silent[0]?.destroyed && !silent.at(-1)?.destroyed, "the oldest connection is closed first");
  });

  test("refuses a new connection if every other connection has a call in flight", async (t) => {
    const { path, session } = await start(t);
    const busy = [session, ...Array.from({ length: 63 }, () => openSession(t, path))];
    const never = busy.map((session) => {
      const stream = session.request({ ":method": "POST", ":path": "/Never", "content-type": "application/grpc" });
      stream.on("error", () => {}).end(frame(hello));
      return stream;
    });
    // One more call on each; its reply shows that the first call has arrived.
    await Promise.all(busy.map((session) => call(session, "/Echo", frame(hello))));
    await once(openSession(t, path), "close");
    assert.ok(never.every((stream) => !stream.destroyed));
    never[0]?.close(8);
    await call(session, "/Echo", frame(hello));
    assert.equal((await call(openSession(t, path), "/Echo", frame(hello))).body, "hello");
    for (const session of busy) session.destroy();
  });

  const resets = soak(5_000);
  test(`serves others while one client resets ${resets} calls and another does not speak HTTP/2`, async (t) => {
    const { path, session } = await start(t);
    const http1 = connect({ path });
    http1.on("error", () => {}).write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    const hostile = openSession(t, path);
    for (let count = 0; count < resets && !hostile.destroyed; count += 1) {
      const stream = hostile.request({ ":method": "POST", ":path": "/Echo", "content-type": "application/grpc" });
      stream.on("error", () => {});
      stream.close(8);
      if (count % 100 === 0) assert.equal((await call(session, "/Echo", frame(hello))).body, "hello");
    }
    assert.equal((await call(session, "/Echo", frame(hello))).body, "hello");
    http1.destroy();
  });

  test("stops immediately if no call is in flight, whether or not its peers disconnect", async (t) => {
    const { session, path, stop } = await start(t);
    const idle = connect({ path });
    idle.on("error", () => {});
    await call(session, "/Echo", frame(hello));
    await stop();
    await once(session, "close");
  });
});

describe("Protocol Buffers messages", () => {
  test("are decoded to the values that were encoded", () => {
    const message = Buffer.concat([bytesField(1, "ä".repeat(200)), numberField(2, 2 ** 40 + 300), bytesField(16, "x")]);
    const fields = readFields(message);
    assert.deepEqual(
      [stringField(fields, 1), fields.get(2), stringField(fields, 16)],
      ["ä".repeat(200), 2n ** 40n + 300n, "x"],
    );
    assert.equal(stringField(fields, 3), "");
  });

  test("may have unknown fields of any type", () => {
    const unknown = Buffer.from([0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x1d, 1, 2, 3, 4, 0x20, 0xff, 1]);
    assert.equal(stringField(readFields(Buffer.concat([unknown, bytesField(1, "a")])), 1), "a");
  });

  for (const bytes of [
    [0x0a],
    [0x0a, 5, 1],
    [0x08, 0x80],
    [0x0b],
    [0x08, ...Array<number>(11).fill(0xff)],
    [0x11, 1],
  ]) {
    test(`are rejected if their bytes are ${Buffer.from(bytes).toString("hex")}`, () => {
      assert.throws(() => readFields(Uint8Array.from(bytes)), RangeError);
    });
  }

  test("must encode strings as UTF-8", () => {
    assert.throws(() => stringField(readFields(Uint8Array.from([0x0a, 1, 0xff])), 1), TypeError);
    assert.throws(() => stringField(readFields(Uint8Array.from([0x08, 1])), 1), TypeError);
  });
});
