import { decodeJwt, decodeProtectedHeader } from "jose";
import type { createProvider as CreateProvider } from "../../src/provider/provider.ts";
import type { postgresStores as PostgresStores } from "../../src/store/postgres.ts";
import { type Edit, codeWith, load } from "./changed.ts";

/*
 * One replica, and whoever signs with it, as a process over a real store. What a cache keeps is made short, so that a rotation takes parts of a
 * second by real clocks; the rules stay what they are.
 */

const short: readonly Edit[] = [
  ["rotation/policy.ts", "{ long: 3600 + 3600, rotation: 300 }", "{ long: 0.05, rotation: 0.02 }"],
];
/** Nobody waits for anybody. */
const withoutBarrier: readonly Edit[] = [
  ["rotation/waits.ts", "return { since: publishedAt, forMs:", "return { since: record.announcedAt, forMs:"],
  ["rotation/waits.ts", "return { since: unusedAt, forMs:", "return { since: record.retiredAt, forMs:"],
  ["manager/replica.ts", "if (!holds()) {", "if (leaseMs < 0) {"],
  ["manager/replica.ts", "if (!told.signsWith.includes(kid))", "if (told.signsWith.length > 99)"],
  ["manager/manager.ts", "replica.holds && replica.told.publishes > 0", "replica.told.publishes >= 0"],
];

/** What a child tells. */
export type Said =
  | { readonly type: "ready" }
  | { readonly type: "token"; readonly kid: string; readonly exp: number }
  | {
      readonly type: "served";
      readonly ask: number;
      readonly at: number;
      readonly kids: readonly string[] | undefined;
    };

const [, , url = "", name = "", barrier = "on"] = process.argv;
const code = await codeWith("short", barrier === "on" ? short : [...short, ...withoutBarrier]);
const { postgresStores } = await load<{ postgresStores: typeof PostgresStores }>("short", "store/postgres.ts");
const { createProvider } = await load<{ createProvider: typeof CreateProvider }>("short", "provider/provider.ts");

const issuer = "https://op.example";
const stores = await postgresStores(url);
const manager = await code.createKeyManager({
  issuer,
  store: stores.store(issuer),
  wrappingKeys: [Buffer.alloc(32, 7).toString("base64url")],
  replicaName: name,
  policy: {
    rotateEveryDays: 1,
    announceForSeconds: 0.3,
    cacheSlackSeconds: 0,
    clockSkewSeconds: 0.2,
    maxTokenLifetimeSeconds: 1,
    leaseSeconds: 1,
  },
});
const provider = await createProvider(manager.options);
await manager.attach(provider);

const say = (said: Said): void => void process.send?.(said);
process.on("disconnect", () => process.exit());
process.on("message", (asked: { readonly type: "serve"; readonly ask: number } | { readonly type: "rotate" }) => {
  if (asked.type === "rotate") {
    void (async () => manager.execute({ type: "rotate", use: "sig", key: await manager.makeKey("sig") }))().catch(
      () => {},
    );
    return;
  }
  void (async () => {
    const response = provider.fetch(new Request(provider.jwksUri));
    const isReady = manager.isReady;
    const { keys } = (await response.json()) as { keys: { kid: string }[] };
    say({ type: "served", ask: asked.ask, at: Date.now(), kids: isReady ? keys.map(({ kid }) => kid) : undefined });
  })();
});
setInterval(() => {
  provider.sign({ sub: "a" }, { lifetimeSeconds: 1 }).then(
    (token) =>
      say({
        type: "token",
        kid: decodeProtectedHeader(token).kid as string,
        exp: (decodeJwt(token).exp as number) * 1000,
      }),
    () => {},
  );
}, 25);
say({ type: "ready" });
