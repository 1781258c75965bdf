import { createLocalJWKSet, createRemoteJWKSet } from "jose";
// A guard with all extension points of docs/relying-party.md, in frameworks with their own types.
import { createClientVerifier } from "jwksd";
import {
  type VerifiedAccessToken,
  type BearerGuardOptions,
  type NodeGuardedRequest,
  type SetIfAbsent,
  type KeySetStateStore,
  createBearerGuard,
  memoryReplayStore,
} from "jwksd/bearer";
import { type Fetch, createRemoteKeySet } from "jwksd/relying-party";

const issuer = "https://login.example.com";

/** The type of the Redis client. */
declare const redis: {
  set(key: string, value: string, options: { NX: true; PXAT: number }): Promise<string | null>;
};
export const redisReplay: SetIfAbsent = (key, expiresAt) =>
  redis.set(key, "", { NX: true, PXAT: expiresAt }).then((reply) => reply === "OK");
const used = new Map<string, Date>();
const replay = (key: string, expiresAt: number, clientId: string): boolean => {
  const name = `${clientId} ${key}`;
  return !used.has(name) && used.set(name, new Date(expiresAt)).size > 0;
};
export const verifiers = [redisReplay, replay, memoryReplayStore({ maxEntries: 10 })].map((replay) =>
  createClientVerifier({ issuer, replay }),
);

const states = new Map<string, string>();
const state: KeySetStateStore = {
  get: async (name) => JSON.parse(states.get(name) ?? "null"),
  set: (name, state) => states.set(name, JSON.stringify(state)),
};

interface OwnRequest {
  method?: string;
  url?: string;
  headers: Record<string, string | string[] | undefined>;
  session?: { token: string };
}

const limited: Fetch = (url, init) => fetch(url, init);
const options: BearerGuardOptions = {
  issuer: [
    issuer,
    { issuer: "https://a.example", jwksUri: "https://a.example/jwks" },
    { issuer: "https://b.example", keys: createRemoteKeySet({ issuer: "https://b.example", fetch: limited }) },
    { issuer: "https://c.example", keys: createRemoteJWKSet(new URL("https://c.example/jwks")) },
    { issuer: "https://d.example", keys: createLocalJWKSet({ keys: [] }) },
  ],
  audience: { claim: "client_id", values: ["app"] },
  replay,
  state,
  keySet: { fetch: limited, timeoutMs: 1_000 },
  token: async ({ session }: OwnRequest) => session?.token,
  certificate: ({ headers }: OwnRequest) => [headers["client-cert"]].flat()[0],
  requestId: ({ url }: OwnRequest) => url,
  clock: { now: () => Date.now(), setTimer: (callback, delayMs) => () => [callback, delayMs] },
  onEvent(event) {
    if (event.type === "refused") console.log(event.status, event.error, event.code, event.reason);
    else if (event.type === "failed") console.log(event.code, event.cause);
    else if (event.event.type === "failed") console.log(event.issuer, event.event.error.code);
  },
};
export const bearer = createBearerGuard(options);

/** Handler that each framework calls in its own way. */
const answer = (auth: VerifiedAccessToken | undefined): string =>
  [auth?.claims.sub, auth?.claims["tenant"], auth?.scopes.join()].map(String).join(" ");

class OwnResponse {
  headersSent = false;
  setHeader(name: string, value: string | number | readonly string[]): this {
    return name === value ? this : this;
  }
  writeHead(status: number, headers?: unknown): this {
    return status === headers ? this : this;
  }
  end(chunk?: unknown, encoding?: unknown): this {
    return chunk === encoding ? this : this;
  }
}
export async function likeExpress(request: OwnRequest, response: OwnResponse): Promise<void> {
  await bearer.express({ scope: { any: ["a"] } })(request, response, (error?: unknown) => console.log(error));
}

class OwnSocket {
  destroyed = false;
  on(_event: "error", listener: () => void): this {
    listener();
    return this;
  }
  off(_event: "error", listener: () => void): this {
    listener();
    return this;
  }
  end(_text: string, written: () => void): void {
    written();
  }
  destroy(): void {
    this.destroyed = true;
  }
}
export const likeUpgrade = (request: NodeGuardedRequest): Promise<boolean> =>
  bearer.upgrade({ acrValues: ["phr"], maxAgeSeconds: 60 })(request, new OwnSocket());

export default {
  async fetch(request: Request): Promise<Response> {
    const auth = await bearer.check(request, { scope: "a b" });
    if (auth instanceof Response) return auth;
    if (auth.claims.sub === undefined) {
      const { status, headers, body } = bearer.challenge(request, {
        status: 403,
        description: "the user does not exist",
      });
      return new Response(body, { status, headers });
    }
    const guest = await bearer.check(request, { optional: true });
    return new Response(guest instanceof Response ? guest.body : answer(guest));
  },
};
