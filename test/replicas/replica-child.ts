import assert from "node:assert/strict";
import { flushCompileCache } from "node:module";
import { decodeJwt, decodeProtectedHeader } from "jose";
import type { Clock, systemClock as SystemClock } from "../../src/base/clock.ts";
import type { createProvider as CreateProvider } from "../../src/provider/create-provider.ts";
import type { createCustody as CreateCustody } from "../../src/rotation/custody/custody.ts";
import type { servedBy as ServedBy } from "../../src/rotation/custody/issuer-check.ts";
import type { readWrappingKeys as ReadWrappingKeys } from "../../src/rotation/custody/key-wrapping.ts";
import type { createKeyring as CreateKeyring } from "../../src/rotation/manager/key-changes.ts";
import type { createStoreAccess as CreateStoreAccess } from "../../src/rotation/manager/store-access.ts";
import type { rotationPolicy as RotationPolicyOf } from "../../src/rotation/rules/policy.ts";
import type { postgresStore as PostgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import type { signOnce as SignOnce } from "../../src/service/token/sign-once.ts";
import { type Edit, codeWith, load } from "./changed.ts";

/*
 * One process that publishes or signs for many issuers, over a real store. Cache lifetimes are shortened, so that a rotation takes seconds by
 * real clocks; the rules are unchanged.
 */

/** The configuration of a process. */
export interface Config {
  readonly url: string;
  readonly name: string;
  /** A `replica` publishes and signs; a `signer` signs with its own manager; `token` reads and signs once, like `jwksd token`. */
  readonly role: "replica" | "signer" | "token";
  readonly issuers: readonly string[];
  readonly maxStaleSeconds: number;
  /** Whether it respects `maxStaleSeconds`. If not, it uses forever what it has read. */
  readonly rule: "on" | "off";
}

/** A message to a process. */
export type Request =
  | { readonly type: "look-up"; readonly lookup: number; readonly issuer: string; readonly kid: string }
  | { readonly type: "rotate"; readonly issuer: string };

/** A message from a process. */
export type Message =
  | { readonly type: "ready" }
  | { readonly type: "token"; readonly issuer: string; readonly kid: string; readonly exp: number }
  /** `publishes`: whether it publishes the kid; `undefined` while it is not ready. */
  | {
      readonly type: "looked-up";
      readonly lookup: number;
      readonly at: number;
      readonly publishes: boolean | undefined;
    };

const short: readonly Edit[] = [
  ["rotation/rules/policy.ts", "long: maxAgeSeconds.long + long.whileRevalidated", "long: 0.05"],
  ["rotation/rules/policy.ts", "rotation: maxAgeSeconds.rotation + rotation.whileRevalidated", "rotation: 0.02"],
  ["rotation/rules/policy.ts", "clockSkewSeconds: number(1)", "clockSkewSeconds: number(0)"],
  // After each fault, all connections are opened again, and each of them is a server process.
  ["rotation/store/postgres/open-pool.ts", "const max = 10", "const max = 3"],
];
/** Edits after which a process uses forever what it has read, and no waiting period includes `maxStaleSeconds`. */
const withoutRule: readonly Edit[] = [
  ["rotation/manager/check-in.ts", "if (leftMs(published) <= 0)", "if (leftMs(published) < -1e15)"],
  ["rotation/rules/policy.ts", "return policy.maxStaleSeconds + cachedForSeconds.long", "return cachedForSeconds.long"],
  ["rotation/rules/policy.ts", "return (maxStaleSeconds + maxTokenLifetimeSeconds", "return (maxTokenLifetimeSeconds"],
];

const config = JSON.parse(process.argv[2] ?? "") as Config;
const { url, name, role, issuers, maxStaleSeconds, rule } = config;
const wrappingKeys = [Buffer.alloc(32, 7).toString("base64url")];
// Longer than the response time of a busy server.
const clockSkewSeconds = 0.3;
const announceForSeconds = (rule === "on" ? maxStaleSeconds : 0) + 0.05 + clockSkewSeconds;
const policy = {
  rotateEveryDays: (announceForSeconds + maxStaleSeconds + 1 + 2 * clockSkewSeconds + 0.1) / 86_400,
  announceForSeconds,
  cacheSlackSeconds: 0,
  clockSkewSeconds,
  maxTokenLifetimeSeconds: 1,
  maxStaleSeconds,
};

process.on("disconnect", () => process.exit());
const send = (message: Message): void => void process.send?.(message, () => {});
const sendToken = (issuer: string, token: string): void => {
  const [{ kid = "" }, { exp = 0 }] = [decodeProtectedHeader(token), decodeJwt(token)];
  send({ type: "token", issuer, kid, exp: exp * 1000 });
};

const sendReady = (): void => {
  // The process will be killed, and later ones use its compile cache.
  flushCompileCache();
  send({ type: "ready" });
};

/** Calls back for each issuer in turn, forever, one call at a time. */
async function forever(pauseMs: number, work: (issuer: string) => Promise<void>): Promise<never> {
  for (let turn = 0; ; turn += 1) {
    await work(issuers[turn % issuers.length] as string).catch(() => {});
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

/** Retries until an attempt succeeds, because faults at startup, such as a cut connection, are temporary. */
async function retry<T>(attempt: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await attempt();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

const { createKeyManager } = await codeWith("short", rule === "on" ? short : [...short, ...withoutRule], [
  "rotation/store/postgres/postgres.ts",
]);
const { postgresStore } = await load<{ postgresStore: typeof PostgresStore }>(
  "short",
  "rotation/store/postgres/postgres.ts",
);
const { systemClock } = await load<{ systemClock: typeof SystemClock }>("short", "base/clock.ts");
/** Delays timers randomly, as on busy machines, so that not all processes try a step in the same millisecond. */
const clock: Clock = {
  ...systemClock,
  setTimer: (callback, delayMs) => systemClock.setTimer(callback, delayMs + 20 * Math.floor(Math.random() * 10)),
};
const storeOf = (issuer: string) => postgresStore(url, { issuer, timeoutMs: 1_000 });
if (role === "token") await signOneByOne();
else await manage();

async function manage(): Promise<void> {
  const { createProvider } = await load<{ createProvider: typeof CreateProvider }>(
    "short",
    "provider/create-provider.ts",
  );
  const managed = new Map(
    await Promise.all(
      issuers.map(async (issuer) => {
        let hasChanged: (() => void) | undefined;
        const store = storeOf(issuer);
        const manager = await retry(() =>
          createKeyManager({
            issuer,
            store,
            wrappingKeys,
            replicaName: name,
            requireStore: false,
            initialPolicy: policy,
            clock,
            onEvent: ({ type }) => type === "changed" && hasChanged?.(),
          }),
        );
        const provider = await retry(() => createProvider({ keys: manager }));
        // The most critical moment is the first one at which the next key may sign.
        hasChanged = () => void sign(issuer).catch(() => {});
        return [issuer, { manager, provider }] as const;
      }),
    ),
  );
  const of = (issuer: string) => managed.get(issuer) ?? assert.fail(issuer);
  const sign = async (issuer: string): Promise<void> => {
    sendToken(issuer, await of(issuer).provider.sign({ sub: "a" }, { lifetimeSeconds: 1 }));
  };
  const fetches = new Map(issuers.map((issuer) => [issuer, new globalThis.Request(of(issuer).provider.jwksUri)]));
  process.on("message", (request: Request) => {
    if (!managed.has(request.issuer)) return;
    const { manager, provider } = of(request.issuer);
    if (request.type === "rotate") {
      void (async () => manager.execute({ type: "rotate", use: "sig", key: await manager.makeKey("sig") }))().catch(
        () => {},
      );
      return;
    }
    void (async () => {
      const response = await provider.fetch(fetches.get(request.issuer) as globalThis.Request);
      const isReady = manager.isReady;
      const text = await response.text();
      const publishes = isReady ? text.includes(`"kid":"${request.kid}"`) : undefined;
      send({ type: "looked-up", lookup: request.lookup, at: Date.now(), publishes });
    })();
  });
  void forever(60, sign);
  sendReady();
}

async function signOneByOne(): Promise<void> {
  const { signOnce } = await load<{ signOnce: typeof SignOnce }>("short", "service/token/sign-once.ts");
  const { createKeyring } = await load<{ createKeyring: typeof CreateKeyring }>(
    "short",
    "rotation/manager/key-changes.ts",
  );
  const { createStoreAccess } = await load<{ createStoreAccess: typeof CreateStoreAccess }>(
    "short",
    "rotation/manager/store-access.ts",
  );
  const { createCustody } = await load<{ createCustody: typeof CreateCustody }>("short", "rotation/custody/custody.ts");
  const { servedBy } = await load<{ servedBy: typeof ServedBy }>("short", "rotation/custody/issuer-check.ts");
  const { readWrappingKeys } = await load<{ readWrappingKeys: typeof ReadWrappingKeys }>(
    "short",
    "rotation/custody/key-wrapping.ts",
  );
  const { rotationPolicy } = await load<{ rotationPolicy: typeof RotationPolicyOf }>(
    "short",
    "rotation/rules/policy.ts",
  );
  const keys = await readWrappingKeys(wrappingKeys, String);
  const { signal } = new AbortController();
  const signers = new Map(
    await Promise.all(
      issuers.map(async (issuer) => {
        const issuerCheck = servedBy({ issuer, isChosen: true });
        const custody = createCustody({ register: storeOf(issuer), keys, issuerCheck });
        const access = createStoreAccess(custody, { policy: rotationPolicy(policy), clock, signal });
        return [
          issuer,
          { access, keyring: createKeyring({ custody, access, clock, signal, report() {} }, {}) },
        ] as const;
      }),
    ),
  );
  void forever(100, async (issuer) => {
    const signer = signers.get(issuer) ?? assert.fail(issuer);
    sendToken(issuer, await signOnce(signer, () => issuer, { sub: "a" }, { lifetimeSeconds: 1 }));
  });
  sendReady();
}
