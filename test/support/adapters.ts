import { writeFile } from "node:fs/promises";
import { type RequestListener, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after } from "node:test";
import { type EncryptionEntry, type Provider, createProvider, localSigner } from "../../src/index.ts";
import { jwtOptions } from "../../src/provider/adapters/better-auth.ts";
import { type NamedKey, withoutPrivate } from "./keys.ts";
import { startService, temporaryFolder } from "./service.ts";
import { type WireReply, type WireRequest, pipeline } from "./wire.ts";

/** A provider's configuration as plain data, so that a separate process can be set up in the same way. */
export interface Setup {
  /** Private keys, the active one first. */
  readonly keys: readonly NamedKey[];
  /** `alg` is the JWK's member. */
  readonly encryptionKeys?: readonly NamedKey[];
  readonly issuer?: string;
  readonly mountPrefix?: string;
  readonly jwksPath?: string;
  readonly rotation?: boolean;
  readonly cors?: boolean;
}

/** A target that answers requests. */
export interface Target {
  send(request: WireRequest): Promise<WireReply>;
  close(): Promise<void>;
}

/** A target that listens on a port of 127.0.0.1. */
export interface WireTarget extends Target {
  readonly port: number;
}

/** A way to reach the endpoint. */
export interface Adapter<T extends Target = Target> {
  readonly name: string;
  /** Reports whether it supports this setup and answers this target itself with this status. Default: always. */
  takes?(setup: Setup, target: string, status: number): boolean;
  start(setup: Setup): Promise<T>;
}

export const defaultIssuer = "https://op.example";

export async function providerOf(setup: Setup): Promise<Provider> {
  const encryptionKeyset: EncryptionEntry[] = (setup.encryptionKeys ?? []).map((key) => ({
    kid: key.kid,
    publicKey: withoutPrivate(key),
  }));
  return createProvider({
    issuer: setup.issuer ?? defaultIssuer,
    mountPrefix: setup.mountPrefix,
    endpoints: { jwks: setup.jwksPath },
    keyset: await Promise.all(setup.keys.map(async (key) => ({ kid: key.kid, signer: await localSigner(key) }))),
    encryptionKeyset,
    jwksRotationActive: setup.rotation === undefined ? undefined : () => setup.rotation === true,
    cors: setup.cors,
  });
}

const fetchAdapter: Adapter = {
  name: "provider.fetch",
  async start(setup) {
    const provider = await providerOf(setup);
    return {
      async send({ method = "GET", target, headers = [] }) {
        const fields = new Headers();
        for (const [name, value] of headers) fields.append(name, value);
        const url = target.startsWith("/") ? `http://op.example${target}` : target;
        const response = await provider.fetch(new Request(url, { method, headers: fields }));
        const body = Buffer.from(await response.arrayBuffer()).toString("latin1");
        return { status: response.status, headers: Object.fromEntries(response.headers), body };
      },
      close: () => Promise.resolve(),
    };
  },
};

function wireTarget(port: number, close: () => Promise<void>): WireTarget {
  return { port, close, send: async (request) => (await pipeline(port, [request]))[0] as WireReply };
}

/** Starts a `node:http` server on a free port. */
export async function wireServer(listener: RequestListener): Promise<WireTarget> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return wireTarget((server.address() as AddressInfo).port, async () => {
    server.closeAllConnections();
    await server[Symbol.asyncDispose]();
  });
}

const nodeAdapter: Adapter<WireTarget> = {
  name: "provider.node",
  async start(setup) {
    const provider = await providerOf(setup);
    return wireServer((request, response) => provider.node(request, response));
  },
};

const betterAuthAdapter: Adapter = {
  name: "better-auth",
  // better-auth answers other paths.
  takes: (_setup, _target, status) => status !== 404,
  async start(setup) {
    // Loaded here, because not every test that starts adapters needs this one.
    const [{ betterAuth }, { toNodeHandler }, { jwt }] = await Promise.all([
      import("better-auth/minimal"),
      import("better-auth/node"),
      import("better-auth/plugins/jwt"),
    ]);
    const provider = await providerOf(setup);
    const { origin, pathname } = new URL(provider.issuer);
    const basePath = pathname === "/" ? "/api/auth" : pathname.replace(/\/$/, "");
    const secret = "a better-auth secret with more than 32 characters";
    const auth = betterAuth({ baseURL: origin, basePath, secret, plugins: [jwt(jwtOptions(provider))] });
    const others = toNodeHandler(auth);
    return wireServer((request, response) => provider.node(request, response, () => void others(request, response)));
  },
};

/** A separate process. */
export const serviceAdapter: Adapter<WireTarget> = {
  name: "jwksd serve",
  async start(setup) {
    const cleanups: (() => Promise<void>)[] = [];
    const scope = { after: (cleanup: () => Promise<void>) => void cleanups.unshift(cleanup) };
    const close = async (): Promise<void> => {
      for (const cleanup of cleanups) await cleanup();
    };
    const folder = await temporaryFolder(scope);
    const keySetFile = async (name: string, keys: readonly NamedKey[]): Promise<string> => {
      const path = join(folder, name);
      await writeFile(path, JSON.stringify({ keys }), { mode: 0o600 });
      return path;
    };
    const flags = {
      "--issuer": setup.issuer ?? defaultIssuer,
      "--keys": await keySetFile("signing.json", setup.keys),
      "--encryption-keys": setup.encryptionKeys && (await keySetFile("encryption.json", setup.encryptionKeys)),
      "--mount-prefix": setup.mountPrefix,
      "--jwks-path": setup.jwksPath,
    };
    const args = Object.entries(flags).flatMap(([flag, value]) => (value === undefined ? [] : [flag, value]));
    if (setup.rotation === true) args.push("--rotation-mode");
    if (setup.cors === false) args.push("--no-cors");
    const { port } = await startService(scope, args).catch(async (error: unknown) => {
      await close();
      throw error;
    });
    return wireTarget(port, close);
  },
};

/** Adapters that can be reached with a raw socket. */
export const wireAdapters: readonly Adapter<WireTarget>[] = [nodeAdapter, serviceAdapter];

/** Every adapter. Add a new one here or, if it listens on a port, above. */
export const adapters: readonly Adapter[] = [fetchAdapter, ...wireAdapters, betterAuthAdapter];

/** Starts each setup once, on first use, and closes all of them after the caller's suite. */
export function startedOnce<T extends Target>(adapter: Adapter<T>): (setup: Setup) => Promise<T> {
  const targets = new Map<string, Promise<T>>();
  after(async () => {
    await Promise.allSettled([...targets.values()].map(async (target) => (await target).close()));
  });
  return (setup) => {
    const key = JSON.stringify(setup);
    const target = targets.get(key) ?? adapter.start(setup);
    targets.set(key, target);
    return target;
  };
}
