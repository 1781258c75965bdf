import { type ChildProcess, fork } from "node:child_process";
import { on, once } from "node:events";
import { type IncomingMessage, type ServerResponse, createServer, request } from "node:http";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import type { Asked, Config, Said } from "./replica.ts";
import { listening } from "../support/listening.ts";

// An OpenID provider of several processes behind one address.

type Scope = { after(fn: () => unknown): void };

const script = fileURLToPath(new URL("replica.ts", import.meta.url));

/** One process. It answers each message with one message. */
export interface Replica {
  readonly process: ChildProcess;
  said: Said;
  /** Requests that it has now. */
  underWay: number;
  ask(asked: Asked): Promise<Said>;
}

async function startReplica(t: Scope, config: Config): Promise<Replica> {
  const child = fork(script, [JSON.stringify(config)], {
    serialization: "advanced",
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
  t.after(() => child.kill("SIGKILL"));
  const written = text(child.stderr as Readable);
  const messages = on(child, "message", { close: ["exit"] });
  const next = async (): Promise<Said> => {
    const { value, done } = (await messages.next()) as IteratorResult<[Said], undefined>;
    if (done !== true) return value[0];
    throw new Error(`${config.name} has ended: ${await written}`);
  };
  const replica: Replica = {
    process: child,
    said: await next(),
    underWay: 0,
    async ask(asked) {
      child.send(asked);
      return (replica.said = await next());
    },
  };
  return replica;
}

/** The address of the issuer. It sends requests to one replica after the other. */
export class Site {
  readonly replicas: Replica[] = [];
  /** Requests whose replica died. */
  cut = 0;
  readonly #t: Scope;
  readonly #server = createServer((incoming, outgoing) => this.#forward(incoming, outgoing));
  #turn = 0;

  constructor(t: Scope) {
    this.#t = t;
  }

  async listen(): Promise<string> {
    return `http://127.0.0.1:${await listening(this.#t, this.#server)}`;
  }

  async add(config: Config): Promise<void> {
    this.replicas.push(await startReplica(this.#t, config));
  }

  /** Ends a replica in good order: no new requests, then those that it has, then its line in the store. */
  async retire(): Promise<void> {
    const replica = this.replicas.shift() as Replica;
    while (replica.underWay > 0) await new Promise((resolve) => setTimeout(resolve, 2));
    const exited = once(replica.process, "exit");
    replica.process.send({ type: "stop" } satisfies Asked);
    await exited;
  }

  /** Kills a replica with all that it has, once it has something. */
  async kill(): Promise<void> {
    const [replica] = this.replicas as [Replica];
    while (replica.underWay === 0) await new Promise(setImmediate);
    const exited = once(replica.process, "exit");
    replica.process.kill("SIGKILL");
    this.replicas.shift();
    await exited;
  }

  #forward(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const replica = this.replicas[(this.#turn += 1) % this.replicas.length] as Replica;
    replica.underWay += 1;
    outgoing.once("close", () => (replica.underWay -= 1));
    const { method, url: path, headers } = incoming;
    const onward = request({ host: "127.0.0.1", port: replica.said.port, method, path, headers, agent: false });
    onward.on("response", (answer) => {
      outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.on("error", () => outgoing.destroy()).pipe(outgoing);
    });
    onward.on("error", () => {
      this.cut += 1;
      if (outgoing.headersSent) outgoing.destroy();
      else outgoing.writeHead(502).end();
    });
    incoming.pipe(onward);
  }
}
