import type { IncomingMessage, ServerResponse } from "node:http";

/** Answers a request. */
export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

export type Gate = ReturnType<typeof closedGate>;

/** Passes requests to their handler while it is open, and holds them while it is closed. */
export function closedGate() {
  const held: Parameters<Handler>[] = [];
  let handle: Handler | undefined;
  return {
    pass(...exchange: Parameters<Handler>): void {
      if (handle === undefined) held.push(exchange);
      else handle(...exchange);
    },
    open(next: Handler): void {
      handle = next;
      for (const exchange of held.splice(0)) next(...exchange);
    },
    close(): void {
      handle = undefined;
    },
  };
}
