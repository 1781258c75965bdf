import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { Certificate } from "../../client/certificate.ts";

/** A request to a stub. */
export interface StubRequest {
  readonly method: string;
  /** Path and query of the request. */
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
}

/** A stub's response. */
export interface StubAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  /** Body that replaces `json`. */
  readonly body?: string | Uint8Array;
}

/**
 * A fault: an error response; a connection that is cut before or during the response; a connection without a response, or with nothing
 * after its first bytes; a response that is lost after the operation succeeded; or a response whose JSON is changed.
 */
export type Fault =
  | StubAnswer
  | ((json: Record<string, unknown>) => unknown)
  | "cut"
  | "cut in the middle"
  | "silent"
  | "stalled"
  | "lost";

export interface StubServer {
  /** `http://127.0.0.1:PORT`, or https. */
  readonly url: string;
  readonly port: number;
  /** Number of requests for each operation. */
  readonly seen: ReadonlyMap<string, number>;
  /** Makes the next `times` requests for an operation fail. */
  fail(operation: string, fault: Fault, times?: number): void;
  /** Removes all faults. */
  readonly recover: () => void;
  /** Removes all faults and resets the counts. */
  readonly forget: () => void;
  /** Delays the responses of an operation until the returned function is called. */
  readonly hold: (operation: string) => () => void;
  /** Reasons of requests that the real service would have refused: a test expects none. */
  readonly refused: readonly string[];
  /** Resolves when requests that get no response have arrived. */
  silence(): Promise<void>;
  close(): Promise<void>;
}

/** The error of a request that the service refuses, with its response. */
export class Refusal extends Error {
  readonly answer: StubAnswer;
  constructor(reason: string, answer: StubAnswer) {
    super(reason);
    this.answer = answer;
  }
}

/**
 * Starts a stub on loopback. `operationOf` names the operation of a request, and `answer` checks the request as the service would: it throws a
 * {@link Refusal} for a request that the service would refuse.
 */
export async function stubServer(
  operationOf: (request: StubRequest) => string,
  answer: (operation: string, request: StubRequest) => StubAnswer,
  certificate?: Certificate,
): Promise<StubServer> {
  const faults = new Map<string, Fault[]>();
  const held = new Map<string, Promise<void>>();
  const refused: string[] = [];
  const seen = new Map<string, number>();
  let silent = Promise.withResolvers<void>();

  const handle = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const { method = "", url = "", headers } = incoming;
    const request = { method, url, headers, body: Buffer.concat(chunks) };
    const operation = operationOf(request);
    seen.set(operation, (seen.get(operation) ?? 0) + 1);
    await held.get(operation);
    const fault = faults.get(operation)?.shift();
    if (fault === "cut") return void incoming.socket.destroy();
    if (fault === "silent") return silent.resolve();
    if (fault === "stalled" || fault === "cut in the middle") {
      response.writeHead(200, { "Content-Type": "application/json", "Content-Length": 100 });
      await new Promise((resolve) => response.write('{"', resolve));
      return fault === "stalled" ? silent.resolve() : void incoming.socket.destroy();
    }
    if (fault === "lost") {
      checked(operation, request);
      return void incoming.socket.destroy();
    }
    const answered = fault === undefined || typeof fault === "function" ? checked(operation, request) : fault;
    if (typeof fault === "function") fault(answered.json as Record<string, unknown>);
    write(response, answered, method);
  };

  function checked(operation: string, request: StubRequest): StubAnswer {
    try {
      return answer(operation, request);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      refused.push(`${operation}: ${error.message}`);
      return error.answer;
    }
  }

  const listener = (incoming: IncomingMessage, response: ServerResponse): void => {
    handle(incoming, response).catch((error: unknown) => {
      refused.push(`the stub itself: ${String(error)}`);
      response.writeHead(500).end();
    });
  };
  const server = certificate === undefined ? createServer(listener) : createTlsServer(certificate, listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: certificate === undefined ? `http://127.0.0.1:${port}` : `https://localhost:${port}`,
    port,
    seen,
    refused,
    fail(operation, fault, times = 1) {
      const list = faults.get(operation) ?? [];
      faults.set(operation, [...list, ...Array.from({ length: times }, () => fault)]);
    },
    recover: () => faults.clear(),
    forget() {
      faults.clear();
      seen.clear();
      refused.length = 0;
    },
    hold(operation) {
      const { promise, resolve } = Promise.withResolvers<void>();
      held.set(operation, promise);
      return resolve;
    },
    async silence() {
      await silent.promise;
      silent = Promise.withResolvers();
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function write(response: ServerResponse, { status, headers = {}, json, ...answer }: StubAnswer, method: string): void {
  const body = answer.body ?? (json === undefined ? "" : JSON.stringify(json));
  // Connections are kept open, because opening one takes longer than a signature.
  response.writeHead(status, {
    "Content-Length": Buffer.byteLength(body),
    "Content-Type": "application/json",
    ...headers,
  });
  response.end(method === "HEAD" ? undefined : body);
}
