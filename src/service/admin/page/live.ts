import type { ServerResponse } from "node:http";
import type { Clock } from "../../../base/clock.ts";
import { writeReply } from "../../../publish/node.ts";
import { problem } from "../../../publish/respond.ts";
import type { Parts } from "./page.ts";

/** Bounds of the streams of events; times in milliseconds. */
const limits = {
  maxStreams: 8,
  /** How much a reader may leave unread. A stream with more is closed; the browser opens a new one, and gets all parts. */
  maxUnreadBytes: 1_048_576,
  /** Changes within this time are sent as one. */
  gatherMs: 50,
  /** How often the parts are made anew without an event: time passes, and the word of another process is no event. */
  everyMs: 5_000,
} as const;

const tooMany = problem(503, "Service Unavailable", `There are ${limits.maxStreams} streams of events already.`).get;
const stopping = problem(503, "Service Unavailable", "The service is stopping.").get;

/** Streams the parts of the page: makes the parts while there is a stream, and sends each stream the parts that have changed. */
export function createLive(make: () => Promise<Parts>, clock: Clock) {
  /** The markup of each part that a stream was sent last. */
  const streams = new Map<ServerResponse, Map<string, string>>();
  let cancelTimer: (() => void) | undefined;
  let dueInMs = Infinity;
  let isMaking = false;
  let isClosed = false;

  function schedule(delayMs: number): void {
    if (isClosed || streams.size === 0) return;
    if (isMaking || delayMs >= dueInMs) {
      dueInMs = Math.min(dueInMs, delayMs);
      return;
    }
    cancelTimer?.();
    dueInMs = delayMs;
    cancelTimer = clock.setTimer(() => void refresh(), delayMs);
  }

  async function refresh(): Promise<void> {
    isMaking = true;
    [dueInMs, cancelTimer] = [Infinity, undefined];
    const parts = await make().catch(() => undefined);
    isMaking = false;
    if (parts !== undefined) for (const [response, known] of streams) send(response, known, parts);
    const nextMs = Math.min(dueInMs, limits.everyMs);
    dueInMs = Infinity;
    schedule(nextMs);
  }

  return {
    /** Answers with a stream of events, whose first one has all parts. @see HTML Standard, server-sent events */
    open(this: void, response: ServerResponse): void {
      if (isClosed) return writeReply(response, stopping);
      if (streams.size >= limits.maxStreams) return writeReply(response, tooMany);
      response.writeHead(200, {
        "Content-Type": "text/event-stream; charset=utf-8",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
      });
      if (response.req.method === "HEAD") return void response.end();
      // It may be silent, and what is unread is bounded.
      response.setTimeout(0);
      response.write("retry: 1000\n\n");
      streams.set(response, new Map());
      response.once("close", () => {
        streams.delete(response);
        if (streams.size > 0) return;
        cancelTimer?.();
        [dueInMs, cancelTimer] = [Infinity, undefined];
      });
      schedule(0);
    },
    /** Something may have changed. */
    touch: (): void => schedule(limits.gatherMs),
    /** Ends all streams, and refuses new ones. */
    close(this: void): void {
      isClosed = true;
      cancelTimer?.();
      for (const response of streams.keys()) response.end();
    },
  };
}

/** Sends a stream the parts that have changed, and notes them. */
function send(response: ServerResponse, known: Map<string, string>, parts: Parts): void {
  const news = Object.entries(parts).filter(([id, markup]) => known.get(id) !== markup);
  for (const [id, markup] of news) known.set(id, markup);
  // A comment, where there is nothing new, finds out whether the reader is still there.
  response.write(news.length === 0 ? ":\n\n" : `data: ${JSON.stringify(Object.fromEntries(news))}\n\n`);
  if (response.writableLength > limits.maxUnreadBytes) response.destroy();
}
