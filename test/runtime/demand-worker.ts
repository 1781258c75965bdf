import { env, waitUntil } from "cloudflare:workers";
import { systemClock } from "../../src/base/clock.ts";
import { createProvider } from "../../src/provider/create-provider.ts";
import { createIssuers } from "../../src/rotation/issuers/issuers.ts";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import { d1Store } from "../../src/rotation/store/databases/d1.ts";
import {
  type DurableObjectState,
  KeysObject,
  durableObjectStore,
} from "../../src/rotation/store/databases/durable-object.ts";
import { createTestControl } from "./demand-clock.ts";

// A Worker whose clock the test sets, for an issuer in D1 or in a Durable Object.

interface Settings {
  readonly kind: "d1" | "durable-object";
  readonly create: boolean;
  readonly waits: boolean;
  /** Whether the issuer is one of many, in D1. */
  readonly many: boolean;
}
const { settings, ...bindings } = env as typeof env & { readonly settings: Settings };
const issuer = "https://login.example.com";
const store =
  settings.kind === "d1" ? d1Store(bindings.DB, { issuer }) : durableObjectStore(bindings.OBJECTS, { issuer });

let aheadMs = 0;
const common = {
  wrappingKeys: bindings.WRAPPING_KEYS,
  waitUntil: settings.waits ? waitUntil : undefined,
  initialPolicy: { rotateEveryDays: 1, announceForSeconds: 18_300 },
  clock: {
    now: () => Date.now() + aheadMs,
    setTimer: (callback: () => void, delayMs: number) => systemClock.setTimer(callback, delayMs),
  },
};
const keys = await createKeyManager({ ...common, issuer, store, onDemand: true, requireStore: !settings.create });
const provider = await createProvider({ keys });
const issuers = await createIssuers({
  ...common,
  issuer: "https://*.example.com",
  store: (issuer) => d1Store(bindings.DB, { issuer }),
});
interface Signs extends Pick<typeof provider, "sign"> {
  fetch(this: void, request: Request): Response | Promise<Response>;
}
const many: Signs = {
  fetch: ({ url }) => issuers.fetch(new Request(issuer + new URL(url).pathname)),
  sign: (claims, options) => issuers.sign(issuer, claims, options),
};
const { fetch, sign }: Signs = settings.many ? many : provider;

/** A Durable Object whose clock and answers the test controls. */
export class Keys extends KeysObject {
  readonly #test: ReturnType<typeof createTestControl>;

  constructor({ storage }: DurableObjectState) {
    const test = createTestControl();
    super({ storage: test.storage(storage) });
    this.#test = test;
  }

  override async fetch(request: Request): Promise<Response> {
    return (await this.#test.control(request)) ?? super.fetch(request);
  }
}

async function controlObject(request: Request): Promise<Response> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(issuer)));
  const { OBJECTS } = bindings;
  return OBJECTS.get(
    OBJECTS.idFromName(Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("")) as never,
  ).fetch(request.url, {
    method: "PUT",
    body: await request.text(),
  });
}

export default {
  async fetch(request: Request): Promise<Response> {
    if (request.method === "PUT") return controlObject(request);
    aheadMs = Number(request.headers.get("x-ahead-ms"));
    const { pathname } = new URL(request.url);
    if (pathname === "/nothing") return new Response("nothing");
    if (pathname === "/create") await issuers.create(issuer);
    if (pathname !== "/token") return fetch(request);
    try {
      return new Response(await sign({ sub: "a" }, { lifetimeSeconds: 60 }));
    } catch (error) {
      return new Response((error as Error).message, { status: 500 });
    }
  },
};
