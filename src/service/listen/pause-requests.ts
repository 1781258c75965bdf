import type { IncomingMessage, ServerResponse } from "node:http";

/** Function that answers a request. */
export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** Passes requests to their handler while open. Holds them while closed. */
export interface Gate {
  pass(...exchange: Parameters<Handler>): void;
  /** Passes the held requests to `next`, and later requests as they arrive. */
  open(next: Handler): void;
  close(): void;
}

export function closedGate(): Gate {
  const held: Parameters<Handler>[] = [];
  let handle: Handler | undefined;
  return {
    pass(...exchange) {
      if (handle === undefined) held.push(exchange);
      else handle(...exchange);
    },
    open(next) {
      handle = next;
      for (const exchange of held.splice(0)) next(...exchange);
    },
    close() {
      handle = undefined;
    },
  };
}
