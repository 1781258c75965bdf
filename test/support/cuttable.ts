import { once } from "node:events";
import { type AddressInfo, type Socket, connect, createServer } from "node:net";

/** The fault of a connection when its client sends a marker. */
export type Cut = "before the server receives it" | "after the server has responded" | "silent from then on";

/** A network between clients and a server that can be cut or made silent. */
export interface Cuttable {
  readonly port: number;
  /** Returns how often clients have sent a counted marker. */
  count(marker: string): number;
  /** Cuts the next connection that sends this marker; `onCut` is called at that moment. */
  cutAt(marker: string, cut: Cut, onCut?: () => void): void;
  /** Breaks all connections and accepts no new ones until {@link restore}. */
  cut(): void;
  /** Keeps all connections, and accepts new ones, but transfers no data until {@link restore}. */
  silence(): void;
  restore(): void;
  /** Connects new clients to the server on this port; existing connections stay. */
  routeNewTo(port: number): void;
  /** Breaks all connections and connects new clients to the server on this port. */
  redirect(port: number): void;
  close(): Promise<void>;
}

export async function cuttable(serverPort: number, counted: readonly string[] = []): Promise<Cuttable> {
  let target = serverPort;
  const pairs = new Set<readonly [Socket, Socket]>();
  const counts = new Map(counted.map((marker) => [marker, 0]));
  let state: "open" | "cut" | "silent" = "open";
  let next: { readonly marker: string; readonly cut: Cut; readonly onCut: () => void } | undefined;

  const listener = createServer((client) => {
    if (state === "cut") {
      client.destroy();
      return;
    }
    const server = connect(target, "127.0.0.1");
    const pair = [client, server] as const;
    pairs.add(pair);
    let isSilent = false;
    let endsWithResponse = false;
    const destroy = (): void => {
      client.destroy();
      server.destroy();
      pairs.delete(pair);
    };
    client.on("data", (chunk: Buffer) => {
      for (const [marker, count] of counts) if (chunk.includes(marker)) counts.set(marker, count + 1);
      if (state === "silent" || isSilent) return;
      if (next !== undefined && chunk.includes(next.marker)) {
        const { cut, onCut } = next;
        next = undefined;
        onCut();
        endsWithResponse = cut === "after the server has responded";
        isSilent = cut === "silent from then on";
        if (cut === "before the server receives it") destroy();
      }
      if (!server.destroyed) server.write(chunk);
    });
    server.on("data", (chunk: Buffer) => {
      if (endsWithResponse) destroy();
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
    count: (marker) => counts.get(marker) ?? 0,
    cutAt: (marker, cut, onCut = () => {}) => void (next = { marker, cut, onCut }),
    cut() {
      state = "cut";
      breakAll();
    },
    silence: () => void (state = "silent"),
    restore() {
      // Data that was sent during the silence is lost.
      if (state === "silent") breakAll();
      state = "open";
    },
    routeNewTo: (port) => void (target = port),
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
