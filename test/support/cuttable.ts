import { once } from "node:events";
import { type AddressInfo, type Socket, connect, createServer } from "node:net";

/** What happens to a connection at the moment at which its client says a word. */
export type Cut = "before the server hears it" | "after the server has answered" | "silent from then on";

/** A network between clients and a server, which can be cut, or fall silent. */
export interface Cuttable {
  readonly port: number;
  /** How often a client has said each word that is counted. */
  count(word: string): number;
  /** The next connection that says this word is cut; `onCut` is called at that moment. */
  cutAt(word: string, cut: Cut, onCut?: () => void): void;
  /** Breaks all connections, and takes no new ones until {@link mend}. */
  cut(): void;
  /** Keeps all connections, and new ones, and carries nothing. */
  silence(): void;
  mend(): void;
  /** New connections lead to the server on this port; existing ones stay where they are. */
  lead(port: number): void;
  /** Breaks all connections; new ones lead to the server on this port. */
  redirect(port: number): void;
  close(): Promise<void>;
}

export async function cuttable(serverPort: number, counted: readonly string[] = []): Promise<Cuttable> {
  let target = serverPort;
  const pairs = new Set<readonly [Socket, Socket]>();
  const counts = new Map(counted.map((word) => [word, 0]));
  let state: "open" | "cut" | "silent" = "open";
  let next: { readonly word: string; readonly cut: Cut; readonly onCut: () => void } | undefined;

  const listener = createServer((client) => {
    if (state === "cut") {
      client.destroy();
      return;
    }
    const server = connect(target, "127.0.0.1");
    const pair = [client, server] as const;
    pairs.add(pair);
    let isSilent = false;
    let endsWithAnswer = false;
    const destroy = (): void => {
      client.destroy();
      server.destroy();
      pairs.delete(pair);
    };
    client.on("data", (chunk: Buffer) => {
      for (const [word, count] of counts) if (chunk.includes(word)) counts.set(word, count + 1);
      if (state === "silent" || isSilent) return;
      if (next !== undefined && chunk.includes(next.word)) {
        const { cut, onCut } = next;
        next = undefined;
        onCut();
        endsWithAnswer = cut === "after the server has answered";
        isSilent = cut === "silent from then on";
        if (cut === "before the server hears it") destroy();
      }
      if (!server.destroyed) server.write(chunk);
    });
    server.on("data", (chunk: Buffer) => {
      if (endsWithAnswer) destroy();
      else if (state !== "silent" && !isSilent) client.write(chunk);
    });
    for (const socket of pair) socket.on("close", destroy).on("error", destroy);
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");

  const breakAll = (): void => {
    for (const pair of pairs) for (const socket of pair) socket.destroy();
  };
  return {
    port: (listener.address() as AddressInfo).port,
    count: (word) => counts.get(word) ?? 0,
    cutAt: (word, cut, onCut = () => {}) => void (next = { word, cut, onCut }),
    cut() {
      state = "cut";
      breakAll();
    },
    silence: () => void (state = "silent"),
    mend() {
      // What was said into the silence is lost.
      if (state === "silent") breakAll();
      state = "open";
    },
    lead: (port) => void (target = port),
    redirect(port) {
      target = port;
      breakAll();
    },
    async close() {
      breakAll();
      listener.close();
      await once(listener, "close");
    },
  };
}
