import type { Http2Server, ServerHttp2Session, ServerHttp2Stream } from "node:http2";

interface Limits {
  readonly sessions: number;
  /** Time within which a session's first call must begin, in milliseconds. */
  readonly firstCallMs: number;
  /** How long a session may go without a frame before it is closed, in milliseconds. */
  readonly idleMs: number;
}

interface Session {
  callsInFlight: number;
  hasCalled: boolean;
}

/**
 * Limits a server's sessions. If there are too many, closes a session without a call in flight: the oldest one that has
 * never made a call or, if all have, the one that has been idle longest.
 */
export function boundSessions(server: Http2Server, limits: Limits): void {
  // Ordered by last call, so that the session that has been idle longest comes first.
  const sessions = new Map<ServerHttp2Session, Session>();

  server.on("session", (session) => {
    const state: Session = { callsInFlight: 0, hasCalled: false };
    sessions.set(session, state);
    const firstCallTimer = setTimeout(() => session.destroy(), limits.firstCallMs);
    session.setTimeout(limits.idleMs, () => session.close());
    session.once("close", () => {
      clearTimeout(firstCallTimer);
      sessions.delete(session);
    });
    session.on("stream", (stream: ServerHttp2Stream) => {
      clearTimeout(firstCallTimer);
      state.hasCalled = true;
      state.callsInFlight += 1;
      stream.once("close", () => {
        state.callsInFlight -= 1;
        // Moves it to the end of the order, unless it has closed.
        if (sessions.delete(session)) sessions.set(session, state);
      });
    });
    if (sessions.size <= limits.sessions) return;
    const evicted = firstIdle(session) ?? session;
    sessions.delete(evicted);
    evicted.destroy();
  });

  function firstIdle(added: ServerHttp2Session): ServerHttp2Session | undefined {
    const idle = [...sessions].filter(([session, { callsInFlight }]) => session !== added && callsInFlight === 0);
    const [evicted] = idle.find(([, { hasCalled }]) => !hasCalled) ?? idle[0] ?? [];
    return evicted;
  }
}
