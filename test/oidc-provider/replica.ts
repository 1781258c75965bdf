import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { mock } from "node:test";
import { setTimeout } from "node:timers/promises";
import { Provider } from "oidc-provider";
import { sqliteAdapter } from "../../examples/docs/oidc-adapter.mts";
import { signerBackend } from "../../src/keys/open.ts";
import { withJwksd } from "../../src/provider/adapters/oidc-provider.ts";
import { advance } from "../../src/rotation/rules/advance.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { World } from "../manager/world.ts";
import { start } from "../rotation/key-records.ts";

/*
 * One process of an OpenID provider that is made with oidc-provider. Its time is told: the clock of the manager, and `Date`, by which oidc-provider
 * and jose go.
 */

/** What a process is told at its start. */
export interface Config {
  readonly name: string;
  readonly issuer: string;
  readonly nowMs: number;
  /** Sessions, codes and grants. */
  readonly sessions: string;
  readonly keys: ManagedKeys | HandKeys;
}

/** Of jwksd, in one store. */
interface ManagedKeys {
  readonly store: string;
  readonly wrappingKey: string;
  readonly hsm?: { readonly uri: string; readonly modulePath: string; readonly pinFile: string } | undefined;
}

/** In the configuration of oidc-provider. */
interface HandKeys {
  readonly jwks: readonly object[];
}

export type Asked =
  | { readonly type: "pass"; readonly ms: number }
  | { readonly type: "revoke" }
  | { readonly type: "stop" };

/** What a process answers to each request, and at its start. */
export interface Said {
  readonly port: number;
  readonly states: readonly (readonly [kid: string, state: string])[];
  /** When the next planned step is due. */
  readonly nextAt: number;
  /** Errors of oidc-provider since the last answer. */
  readonly errors: readonly string[];
}

/** Clocks of processes may differ by as much as one leap of time. */
const policy = {
  rotateEveryDays: 36_000 / 86_400,
  announceForSeconds: 14_400,
  clockSkewSeconds: 3_400,
  cacheSlackSeconds: 0,
  maxStaleSeconds: 3_600,
};

const config = JSON.parse(process.argv[2] ?? "") as Config;
const { keys, issuer } = config;
mock.timers.enable({ apis: ["Date"], now: config.nowMs });
let errors: string[] = [];

const configuration = {
  adapter: sqliteAdapter(config.sessions),
  clients: [
    {
      client_id: "app",
      client_secret: "secret",
      redirect_uris: ["https://app.example/callback"],
      userinfo_signed_response_alg: "ES256",
      // The adapter makes it the default.
      ...("jwks" in keys && { id_token_signed_response_alg: "ES256", introspection_signed_response_alg: "ES256" }),
    },
  ],
  cookies: { keys: ["a secret of this run"] },
  claims: { openid: ["sub"], email: ["email"] },
  ttl: { AccessToken: 3540, IdToken: 3600 },
  async findAccount(_ctx: unknown, accountId: string) {
    // As a database takes its time: a key may be replaced meanwhile.
    await setTimeout(20);
    return { accountId, claims: () => ({ sub: accountId, email: `${accountId}@example.com` }) };
  },
  features: {
    introspection: { enabled: true },
    jwtIntrospection: { enabled: true },
    jwtUserinfo: { enabled: true },
  },
};

/** What is behind one word of a reply. */
function note(_ctx: unknown, error: unknown): void {
  const { message, code = "" } = error as Error & { readonly code?: string };
  errors.push(`${code} ${message}`);
}

function create(configuration: object): Provider {
  const provider = new Provider(issuer, configuration);
  for (const event of ["server_error", "authorization.error", "grant.error"]) provider.on(event, note);
  return provider;
}

async function managed({ store, wrappingKey, hsm }: ManagedKeys) {
  const world = new World();
  world.setBy(config.nowMs - start);
  const backend =
    hsm &&
    (await signerBackend(hsm.uri, {
      pkcs11: { modulePath: hsm.modulePath, token: hsm.uri, pin: { file: hsm.pinFile } },
    }));
  const { manager } = await world.start({
    issuer,
    store: await sqliteStore(store),
    wrappingKeys: [wrappingKey],
    replicaName: config.name,
    policy,
    ...(backend && {
      createSigner: (request) => backend.create(request),
      openSigner: (uri, options) => backend.open(uri, options),
      destroySigner: (uri, options) => backend.destroy(uri, options),
    }),
  });
  const op = await world.until(withJwksd(manager, configuration, create));
  return {
    handler: op.handler,
    async pass(ms: number) {
      await world.pass(ms);
      mock.timers.setTime(world.clock.now());
      await world.until(manager.look().catch(() => {}));
    },
    async revoke() {
      const { kid = "" } = manager.records.find(({ use, state }) => use === "sig" && state === "active") ?? {};
      await world.until(manager.revoke(kid));
    },
    states: () => manager.records.map(({ kid, state }) => [kid, state] as const),
    nextAt: () => advance(manager.records, manager.policy, world.clock.now()).wakeAt,
    close: () => manager.close(),
  };
}

function byHand({ jwks }: HandKeys): Awaited<ReturnType<typeof managed>> {
  return {
    handler: create({ ...configuration, jwks: { keys: jwks } }).callback(),
    pass: async (ms) => mock.timers.setTime(Date.now() + ms),
    revoke: async () => {},
    states: () => [],
    nextAt: () => Infinity,
    close: async () => {},
  };
}

const op = "jwks" in keys ? byHand(keys) : await managed(keys);
const server = createServer(op.handler).listen(0, "127.0.0.1", answer);

function answer(): void {
  const said: Said = {
    port: (server.address() as AddressInfo).port,
    states: op.states(),
    nextAt: op.nextAt(),
    errors,
  };
  errors = [];
  process.send?.(said);
}

process.on("message", (asked: Asked) => {
  void (async () => {
    if (asked.type === "pass") await op.pass(asked.ms);
    if (asked.type === "revoke") await op.revoke();
    if (asked.type === "stop") {
      await op.close();
      process.exit();
    }
    answer();
  })();
});
process.on("disconnect", () => process.exit());
