import assert from "node:assert/strict";
import { flushCompileCache } from "node:module";
import { decodeJwt, decodeProtectedHeader } from "jose";
import type { Clock, systemClock as SystemClock } from "../../src/base/clock.ts";
import type { createKeyring as CreateKeyring } from "../../src/rotation/manager/keyring.ts";
import type { servedBy as ServedBy } from "../../src/rotation/custody/issuer-check.ts";
import type { createCustody as CreateVault } from "../../src/rotation/custody/custody.ts";
import type { readWrappingKeys as ReadWrappingKeys } from "../../src/rotation/custody/wrapping.ts";
import type { createProvider as CreateProvider } from "../../src/library/provider/provider.ts";
import type { rotationPolicy as RotationPolicyOf } from "../../src/rotation/rules/policy.ts";
import type { signFresh as SignFresh } from "../../src/service/endpoint/sign.ts";
import type { postgresStores as PostgresStores } from "../../src/rotation/store/postgres/postgres.ts";
import { type Edit, codeWith, load } from "./changed.ts";

/*
 * One process that publishes or signs for many issuers, over a real store. What a cache keeps is made short, so that a rotation takes seconds by
 * real clocks; the rules stay what they are.
 */

/** What a process is told at its start. */
export interface Config {
  readonly url: string;
  readonly name: string;
  /** A `replica` publishes and signs; a `signer` signs with a manager of its own; `token` signs without a lease, as `jwksd token` does. */
  readonly role: "replica" | "signer" | "token";
  readonly issuers: readonly string[];
  readonly leaseSeconds: number;
  readonly barrier: "on" | "off";
}

export type Asked =
  | { readonly type: "look"; readonly ask: number; readonly issuer: string; readonly kid: string }
  | { readonly type: "rotate"; readonly issuer: string };

/** What a process tells. */
export type Said =
  | { readonly type: "ready" }
  | { readonly type: "token"; readonly issuer: string; readonly kid: string; readonly exp: number }
  /** Whether it publishes the kid; without an answer while it is not ready. */
  | { readonly type: "looked"; readonly ask: number; readonly at: number; readonly publishes: boolean | undefined };

const short: readonly Edit[] = [
  ["rotation/rules/policy.ts", "{ long: 3600 + 3600, rotation: 300 }", "{ long: 0.05, rotation: 0.02 }"],
  ["rotation/rules/policy.ts", "signWithinSeconds = 5", "signWithinSeconds = 0.3"],
  ["rotation/rules/policy.ts", "drainSeconds = 30", "drainSeconds = 0.1"],
  ["rotation/rules/policy.ts", "clockSkewSeconds: number(1)", "clockSkewSeconds: number(0)"],
  // After each fault all connections are made anew, and each of them is a process of the server.
  ["rotation/store/postgres/postgres.ts", "maxConnections = 11", "maxConnections = 4"],
];
/** Nobody waits for anybody. */
const withoutBarrier: readonly Edit[] = [
  ["rotation/rules/waits.ts", "return { since: publishedAt, forMs:", "return { since: record.announcedAt, forMs:"],
  ["rotation/rules/waits.ts", "return { since: unusedAt, forMs:", "return { since: record.retiredAt, forMs:"],
  ["rotation/manager/replica.ts", "error = replica.holds ?", "error = replica.lastReported ?"],
  ["rotation/manager/replica.ts", "if (!signsWith.includes(kid))", "if (signsWith.length > 99)"],
  ["rotation/manager/replica.ts", "holds() && lastReported.publishes > 0", "lastReported.publishes >= 0"],
];

const config = JSON.parse(process.argv[2] ?? "") as Config;
const { url, name, role, issuers, leaseSeconds, barrier } = config;
const wrappingKeys = [Buffer.alloc(32, 7).toString("base64url")];
const policy = {
  rotateEveryDays: 2.4 / 86_400,
  announceForSeconds: 0.35,
  cacheSlackSeconds: 0,
  // Longer than an answer of a busy server takes.
  clockSkewSeconds: 0.3,
  maxTokenLifetimeSeconds: 1,
  leaseSeconds,
};

process.on("disconnect", () => process.exit());
const say = (said: Said): void => void process.send?.(said, () => {});
const tell = (issuer: string, token: string): void => {
  const [{ kid = "" }, { exp = 0 }] = [decodeProtectedHeader(token), decodeJwt(token)];
  say({ type: "token", issuer, kid, exp: exp * 1000 });
};

const ready = (): void => {
  // It will be killed, and others start after it.
  flushCompileCache();
  say({ type: "ready" });
};

/** Calls back for one issuer after the other, each time when the last call is done. */
async function forever(pauseMs: number, work: (issuer: string) => Promise<void>): Promise<never> {
  for (let turn = 0; ; turn += 1) {
    await work(issuers[turn % issuers.length] as string).catch(() => {});
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

/** Nothing that fails at the start, as a network that is cut, lasts. */
async function again<T>(attempt: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await attempt();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

const { createKeyManager } = await codeWith("short", barrier === "on" ? short : [...short, ...withoutBarrier], [
  "rotation/store/postgres/postgres.ts",
]);
const { postgresStores } = await load<{ postgresStores: typeof PostgresStores }>(
  "short",
  "rotation/store/postgres/postgres.ts",
);
const { systemClock } = await load<{ systemClock: typeof SystemClock }>("short", "base/clock.ts");
/** Timers are late, as they are on machines with other work, each by another time: so not all try a step in the same millisecond. */
const clock: Clock = {
  ...systemClock,
  setTimer: (callback, delayMs) => systemClock.setTimer(callback, delayMs + 20 * Math.floor(Math.random() * 10)),
};
const stores = await again(() => postgresStores(url, { timeoutMs: 1_000 }));
if (role === "token") await signWithoutLease();
else await manage();

async function manage(): Promise<void> {
  const { createProvider } = await load<{ createProvider: typeof CreateProvider }>(
    "short",
    "library/provider/provider.ts",
  );
  const managed = new Map(
    await Promise.all(
      issuers.map(async (issuer) => {
        let hasChanged: (() => void) | undefined;
        const manager = await again(() =>
          createKeyManager({
            issuer,
            store: stores.store(issuer),
            wrappingKeys,
            replicaName: name,
            policy,
            clock,
            onEvent: ({ type }) => type === "changed" && hasChanged?.(),
          }),
        );
        const provider = await again(() => createProvider({ keys: manager }));
        // The first moment at which the next key may sign is the worst.
        hasChanged = () => void sign(issuer).catch(() => {});
        return [issuer, { manager, provider }] as const;
      }),
    ),
  );
  const of = (issuer: string) => managed.get(issuer) ?? assert.fail(issuer);
  const sign = async (issuer: string): Promise<void> => {
    tell(issuer, await of(issuer).provider.sign({ sub: "a" }, { lifetimeSeconds: 1 }));
  };
  const requests = new Map(issuers.map((issuer) => [issuer, new Request(of(issuer).provider.jwksUri)]));
  process.on("message", (asked: Asked) => {
    if (!managed.has(asked.issuer)) return;
    const { manager, provider } = of(asked.issuer);
    if (asked.type === "rotate") {
      void (async () => manager.execute({ type: "rotate", use: "sig", key: await manager.makeKey("sig") }))().catch(
        () => {},
      );
      return;
    }
    void (async () => {
      const response = provider.fetch(requests.get(asked.issuer) as Request);
      const isReady = manager.isReady;
      const text = await response.text();
      const publishes = isReady ? text.includes(`"kid":"${asked.kid}"`) : undefined;
      say({ type: "looked", ask: asked.ask, at: Date.now(), publishes });
    })();
  });
  void forever(60, sign);
  ready();
}

async function signWithoutLease(): Promise<void> {
  const { signFresh } = await load<{ signFresh: typeof SignFresh }>("short", "service/endpoint/sign.ts");
  const { createKeyring } = await load<{ createKeyring: typeof CreateKeyring }>("short", "rotation/manager/keyring.ts");
  const { createCustody } = await load<{ createCustody: typeof CreateVault }>("short", "rotation/custody/custody.ts");
  const { servedBy } = await load<{ servedBy: typeof ServedBy }>("short", "rotation/custody/issuer-check.ts");
  const { readWrappingKeys } = await load<{ readWrappingKeys: typeof ReadWrappingKeys }>(
    "short",
    "rotation/custody/wrapping.ts",
  );
  const { rotationPolicy } = await load<{ rotationPolicy: typeof RotationPolicyOf }>(
    "short",
    "rotation/rules/policy.ts",
  );
  const keys = await readWrappingKeys(wrappingKeys, String);
  const { signal } = new AbortController();
  const keyrings = new Map(
    issuers.map((issuer) => {
      const issuerCheck = servedBy({ issuer, isChosen: true });
      const custody = createCustody({ store: stores.store(issuer), keys, issuerCheck });
      return [issuer, createKeyring(custody, { policy: rotationPolicy(policy), clock, signal })];
    }),
  );
  void forever(100, async (issuer) => {
    const keyring = keyrings.get(issuer) ?? assert.fail(issuer);
    tell(issuer, await signFresh(keyring, () => issuer, { sub: "a" }, { lifetimeSeconds: 1 }));
  });
  ready();
}
