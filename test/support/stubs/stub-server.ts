import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { Certificate } from "../../client/certificate.ts";

/** What a stub was sent. */
export interface StubRequest {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
}

/** What a stub answers. */
export interface StubAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  /** In the place of `json`. */
  readonly body?: string | Uint8Array;
}

/**
 * What goes wrong: an answer of the service; a connection that is cut before an answer or in its middle; one on which nothing comes, or
 * no more after the first bytes; an answer that is lost after what was asked was done; or one whose JSON is changed on its way.
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
  /** How often each operation was asked for. */
  readonly seen: ReadonlyMap<string, number>;
  /** Lets an operation go wrong, the next `times` times. */
  fail(operation: string, fault: Fault, times?: number): void;
  /** Lets nothing go wrong any more. */
  readonly recover: () => void;
  /** Forgets what it was asked for, too. */
  readonly forget: () => void;
  /** Lets an operation go without its answer until the function that it returns is called. */
  readonly hold: (operation: string) => () => void;
  /** Requests that the service would have refused, by the reason: a test expects none. */
  readonly refused: readonly string[];
  /** Resolves when requests that are left without an answer have arrived. */
  silence(): Promise<void>;
  close(): Promise<void>;
}

/** A request that the service refuses, and what it answers. */
export class Refusal extends Error {
  readonly answer: StubAnswer;
  constructor(reason: string, answer: StubAnswer) {
    super(reason);
    this.answer = answer;
  }
}

/**
 * Serves on loopback. `operationOf` names what a request asks for, and `answer` checks it as the service would: it throws a
 * {@link Refusal} for what the service would not take.
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
  // Connections stay: opening one takes longer than a signature.
  response.writeHead(status, {
    "Content-Length": Buffer.byteLength(body),
    "Content-Type": "application/json",
    ...headers,
  });
  response.end(method === "HEAD" ? undefined : body);
}
