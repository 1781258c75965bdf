import { once } from "node:events";
import { rename, writeFile } from "node:fs/promises";
import { type IncomingHttpHeaders, type RequestListener, createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { TestContext } from "node:test";
import { setTimeout } from "node:timers/promises";
import * as jose from "jose";
import { type Keyset, createProvider, localSigner } from "../../src/index.ts";
import { type NamedKey, named } from "./keys.ts";
import { startService, temporaryFolder } from "./service.ts";

export const audience = "relying-party";

/** An OpenID provider that has swapped its keyset some number of times. */
export interface RotatingOp {
  readonly issuer: string;
  /** Every request that reached it. */
  readonly requests: readonly SeenRequest[];
  /** Publishes the keys after a swap; resolves when they are served. */
  publish(swap: number): Promise<void>;
  /** Delays every request until the returned function is called. */
  hold(): () => void;
  /** Stops listening. */
  stop(): Promise<void>;
}

export interface SeenRequest {
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly response: { readonly statusCode: number };
  /** Time in milliseconds on a monotonic clock. */
  readonly atMs: number;
}

const publishedKeys = 5;

/** Returns the keys after a swap: a new one, the active one, and up to four retiring ones. */
function keysAfter(swap: number): NamedKey[] {
  const count = Math.min(swap + 1, publishedKeys);
  return Array.from({ length: count }, (_, age) => named(kidOf(swap - age)));
}

const kidOf = (swap: number): string => `key-${swap}`;

/** Returns the number of the swap whose key was removed by a swap. */
export const removedBy = (swap: number): number => swap - publishedKeys;

/** Signs a token for the key of a swap; with another swap's key, the token is forged. */
export async function tokenOf(op: RotatingOp, swap: number, keyOf: number = swap): Promise<string> {
  return new jose.SignJWT()
    .setProtectedHeader({ alg: "ES256", kid: kidOf(swap) })
    .setIssuer(op.issuer)
    .setAudience(audience)
    .setExpirationTime("5m")
    .sign(await jose.importJWK(named(kidOf(keyOf)), "ES256"));
}

function keysetAfter(swap: number): Promise<Keyset> {
  return Promise.all(keysAfter(swap).map(async (key) => ({ kid: key.kid, signer: await localSigner(key) })));
}

/** Runs `createProvider` and `provider.update` in the test's process. */
export async function startProvider(t: TestContext): Promise<RotatingOp> {
  const server = await startRecording(t, (incoming, response) => provider.node(incoming, response));
  const provider = await createProvider({ issuer: server.issuer, keyset: await keysetAfter(0) });
  return { ...server, publish: async (swap) => provider.update({ keyset: await keysetAfter(swap) }) };
}

export interface ServeOptions {
  /** Delay of responses. */
  readonly latencyMs: number;
}

/** Runs `jwksd serve`, whose keyset is swapped as operators do: by replacing the file and sending SIGHUP. */
export async function startServe(t: TestContext, { latencyMs }: ServeOptions): Promise<RotatingOp> {
  const server = await startRecording(t, async (incoming, response) => {
    const { url, method, headers } = incoming;
    const forwarded = request({ host: "127.0.0.1", port: service.port, path: url, method, headers }).end();
    const [answer] = await once(forwarded, "response");
    if (latencyMs > 0) await setTimeout(latencyMs);
    response.writeHead(answer.statusCode, answer.headers);
    await pipeline(answer, response);
  });
  const file = join(await temporaryFolder(t), "keys.json");
  const put = async (swap: number): Promise<void> => {
    await writeFile(`${file}.new`, JSON.stringify({ keys: keysAfter(swap) }), { mode: 0o600 });
    await rename(`${file}.new`, file);
  };
  await put(0);
  const service = await startService(t, ["--keys", file, "--issuer", server.issuer]);
  return {
    ...server,
    async publish(swap) {
      const from = service.log.length;
      await put(swap);
      service.reload();
      const isPublished = (kids: unknown): boolean => Array.isArray(kids) && kids[0] === kidOf(swap);
      await service.logged(({ msg, kids }) => msg === "keys reloaded" && isPublished(kids), from);
    },
  };
}

/** Records the requests to the provider. */
async function startRecording(t: TestContext, listener: RequestListener): Promise<Omit<RotatingOp, "publish">> {
  const requests: SeenRequest[] = [];
  let gate = Promise.resolve();
  const server = createServer(async (incoming, response) => {
    const { method, url, headers } = incoming;
    requests.push({ method, url, headers, response, atMs: performance.now() });
    await gate;
    listener(incoming, response);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const stop = async (): Promise<void> => {
    server.closeAllConnections();
    if (server.listening) await server[Symbol.asyncDispose]();
  };
  const hold = (): (() => void) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    gate = promise;
    return resolve;
  };
  t.after(stop);
  return { issuer: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests, hold, stop };
}
