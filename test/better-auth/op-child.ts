// One process of an OpenID provider made with better-auth: `op-child.ts SETTINGS`. At /api/auth jwksd has its keys, and at /own better-auth itself.
// Its time is what its parent says.
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { mock } from "node:test";
import { type JwtPluginOptions, authOf } from "./auth.ts";
import { systemClock } from "../../src/base/clock.ts";
import { createProvider } from "../../src/index.ts";
import { jwtOptions } from "../../src/provider/adapters/better-auth.ts";
import { createKeyManager } from "../../src/rotation/manager/index.ts";
import { advance } from "../../src/rotation/rules/advance.ts";
import { liveRecords } from "../../src/rotation/rules/records.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import type { Asked, Said, Settings } from "./op.ts";
import { toNodeHandler } from "better-auth/node";

const settings = JSON.parse(process.argv[2] ?? "") as Settings;
const { origin, port, databases, now: startMs, rotateEverySeconds } = settings;
const say = (said: Said): void => void process.send?.(said);

mock.timers.enable({ apis: ["Date"], now: startMs });
const timers = new Set<{ readonly dueMs: number; readonly callback: () => void }>();
const clock = {
  now: () => Date.now(),
  monotonic: () => Date.now() - startMs,
  setTimer(callback: () => void, delayMs: number) {
    // The limit of a call of the store is real, as the call is, and so is the pause between two attempts to commit, which alone is random and
    // no whole number of milliseconds.
    if (delayMs === 10_000 || !Number.isInteger(delayMs)) return systemClock.setTimer(callback, delayMs);
    const timer = { dueMs: Date.now() + delayMs, callback };
    timers.add(timer);
    return () => void timers.delete(timer);
  },
};

const issuer = `${origin}/api/auth`;
const store = await postgresStore(databases.jwksd, { issuer });
const manager = await createKeyManager({
  issuer,
  store,
  wrappingKeys: [createHash("sha256").update("wrapping").digest("base64url")],
  policy: settings.policy,
  clock,
  onEvent: (event) => {
    if (event.type === "stale" || event.type === "failed") say({ type: "trouble", what: String(event.error) });
  },
});
const provider = await createProvider({ keys: manager }, { discovery: false, clock });

const managed = jwtOptions(provider);
const own: JwtPluginOptions = {
  jwks: { keyPairConfig: { alg: "ES256" }, rotationInterval: rotateEverySeconds },
  jwt: { issuer: `${origin}/own` },
};
const handlers = {
  "/api/auth": toNodeHandler(authOf({ origin, basePath: "/api/auth", url: databases.managed, jwt: managed }).auth),
  "/own": toNodeHandler(authOf({ origin, basePath: "/own", url: databases.own, jwt: own }).auth),
};
const server = createServer((request, response) =>
  provider.node(request, response, () => {
    const [, handler] = Object.entries(handlers).find(([path]) => request.url?.startsWith(path)) ?? [];
    void handler?.(request, response);
  }),
);

const sink = { update: async () => {} };
/** The manager does one thing after the other, so this one is done after all others. */
const idle = (): Promise<void> => manager.subscribe(sink);

async function goTo(ms: number): Promise<void> {
  mock.timers.setTime(ms);
  for (;;) {
    // A round that began before the time went on sets its timer at its end.
    await idle();
    const due = [...timers].filter(({ dueMs }) => dueMs <= ms);
    for (const timer of due) {
      timers.delete(timer);
      timer.callback();
    }
    if (due.length === 0) return;
  }
}

/** The first key in this state. */
const keyIn = (state: string) => liveRecords(manager.records).find((record) => record.state === state);

const answers: { readonly [Type in Asked["type"]]: (asked: Asked & { type: Type }) => Promise<void> } = {
  time: ({ now }) => goTo(now),
  revoke: async () => void (await manager.revoke(keyIn("active")?.kid ?? "")),
  async stop() {
    await new Promise((resolve) => server.close(resolve));
    await manager.close();
    await store.close?.();
  },
};
process.on("message", async (asked: Asked) => {
  await answers[asked.type](asked as never);
  const removed = manager.records.filter(({ state }) => state === "removed").length;
  say({
    type: "done",
    active: keyIn("active")?.kid ?? "",
    announcedAt: keyIn("announced")?.publishedAt ?? Infinity,
    nextAt: advance(manager.records, manager.policy, Date.now()).wakeAt,
    removed,
  });
  if (asked.type === "stop") process.exit();
});
process.on("disconnect", () => process.exit());
server.listen(port, "127.0.0.1", () => say({ type: "listening" }));
