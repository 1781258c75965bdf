import { once } from "node:events";
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import type { TestContext } from "node:test";

/** Opens a session over a Unix socket, which may be refused. */
export function openSession(t: Pick<TestContext, "after">, path: string): ClientHttp2Session {
  const session = connectHttp2("http://localhost", { createConnection: () => connect({ path }) });
  session.on("error", () => {});
  t.after(() => session.destroy());
  return session;
}

/** Encodes a valid or invalid gRPC message. */
export function frame(message: Uint8Array, flag = 0, length = message.length): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = flag;
  prefix.writeUInt32BE(length, 1);
  return Buffer.concat([prefix, message]);
}

/** The result of a call. */
export interface Answer {
  readonly http: unknown;
  /** Status from the trailers, or from the headers if there are no trailers. */
  readonly grpc: unknown;
  readonly message: unknown;
  readonly body: string;
}

export async function callGrpc(
  session: ClientHttp2Session,
  path: string,
  body: Uint8Array,
  more: object = {},
): Promise<Answer> {
  const headers = { ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers", ...more };
  const stream = session.request(headers);
  let [given, trailers]: Record<string, unknown>[] = [{}, {}];
  let text = "";
  stream.on("response", (headers) => (given = headers));
  stream.on("trailers", (headers) => (trailers = headers));
  stream.setEncoding("latin1").on("data", (chunk: string) => (text += chunk));
  stream.end(body);
  await once(stream, "close");
  const all = { ...given, ...trailers };
  return { http: all[":status"], grpc: all["grpc-status"], message: all["grpc-message"], body: text.slice(5) };
}
