import type { Http2Server, ServerHttp2Session, ServerHttp2Stream } from "node:http2";

interface Limits {
  readonly sessions: number;
  /** Until the first call of a session begins. */
  readonly firstCallMs: number;
  /** Without a frame. */
  readonly idleMs: number;
}

interface Session {
  callsUnderWay: number;
  hasCalled: boolean;
}

/**
 * Limits the sessions of a server. For one too many, it ends one without a call under way: first of those that have never called, then the one
 * that has been idle for longest.
 */
export function boundSessions(server: Http2Server, limits: Limits): void {
  // By their last call, the longest idle first.
  const sessions = new Map<ServerHttp2Session, Session>();

  server.on("session", (session) => {
    const state: Session = { callsUnderWay: 0, hasCalled: false };
    sessions.set(session, state);
    const silent = setTimeout(() => session.destroy(), limits.firstCallMs);
    session.setTimeout(limits.idleMs, () => session.close());
    session.once("close", () => {
      clearTimeout(silent);
      sessions.delete(session);
    });
    session.on("stream", (stream: ServerHttp2Stream) => {
      clearTimeout(silent);
      state.hasCalled = true;
      state.callsUnderWay += 1;
      stream.once("close", () => {
        state.callsUnderWay -= 1;
        // To the end of the line, unless it has left.
        if (sessions.delete(session)) sessions.set(session, state);
      });
    });
    if (sessions.size <= limits.sessions) return;
    const leaving = firstIdle(session) ?? session;
    sessions.delete(leaving);
    leaving.destroy();
  });

  function firstIdle(newest: ServerHttp2Session): ServerHttp2Session | undefined {
    const idle = [...sessions].filter(([session, { callsUnderWay }]) => session !== newest && callsUnderWay === 0);
    const [leaving] = idle.find(([, { hasCalled }]) => !hasCalled) ?? idle[0] ?? [];
    return leaving;
  }
}
