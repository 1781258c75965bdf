import {
  type JSONWebKeySet,
  createLocalJWKSet,
  createRemoteJWKSet,
  decodeJwt,
  decodeProtectedHeader,
  jwtVerify,
} from "jose";
import type { JWTVerifyGetKey } from "jose";
import type { Issued } from "./users.ts";

const gatewaySeconds = 600;

/** Verifiers of one issuer, which keep the set: each in its own way. */
export interface Watch {
  readonly issuer: string;
  /** Kids whose tokens are refused with reason. */
  readonly revoked: Set<string>;
  readonly verified: Readonly<Record<string, number>>;
  readonly refused: Readonly<Record<string, number>>;
  /** Verifies tokens at once, and keeps them. */
  seen(issued: readonly Issued[]): void;
  /** Those that have a copy of the set fetch it again, where it is time. */
  poll(): Promise<void>;
  /** Verifies tokens once more that will have expired after this time. */
  lookAgain(withinSeconds: number): Promise<void>;
}

export function createWatch(issuer: string): Watch {
  const url = new URL(`${issuer}/jwks`);
  const verified: Record<string, number> = {};
  const refused: Record<string, number> = {};
  const revoked = new Set<string>();
  let kept: (Issued & { readonly exp: number })[] = [];
  const underWay = new Set<Promise<void>>();
  const gateway = copyOf(url, () => gatewaySeconds);
  /** The longest that Cache-Control allows. A set without that field is kept as by the gateway. */
  const cache = copyOf(url, (cacheControl) => {
    const [maxAge = gatewaySeconds, stale = 0] = Array.from(cacheControl.matchAll(/=(\d+)/g), ([, value]) =>
      Number(value),
    );
    return maxAge + stale;
  });
  const verifiers: Readonly<Record<string, JWTVerifyGetKey>> = {
    jose: createRemoteJWKSet(url),
    gateway: async (...args) => (await gateway.keys)(...args),
    cache: async (...args) => (await cache.keys)(...args),
  };

  async function verify({ kind, token, audience }: Issued, when: string): Promise<void> {
    for (const [name, keys] of Object.entries(verifiers)) {
      try {
        await jwtVerify(token, keys, { issuer, audience });
        verified[name] = (verified[name] ?? 0) + 1;
      } catch (error) {
        if (revoked.has(decodeProtectedHeader(token).kid ?? "")) continue;
        const reason = `${name}: ${kind}, ${when}: ${(error as { code?: string }).code ?? String(error)}`;
        refused[reason] = (refused[reason] ?? 0) + 1;
      }
    }
  }

  return {
    issuer,
    revoked,
    verified,
    refused,
    seen(issued) {
      for (const one of issued) {
        kept.push({ ...one, exp: decodeJwt(one.token).exp ?? 0 });
        const verifying = verify(one, "new").finally(() => underWay.delete(verifying));
        underWay.add(verifying);
      }
    },
    async poll() {
      await Promise.all([gateway.poll(), cache.poll()]);
    },
    async lookAgain(withinSeconds) {
      await Promise.all(underWay);
      const nowSeconds = Date.now() / 1000;
      const due = kept.filter(({ exp }) => exp <= nowSeconds + withinSeconds);
      kept = kept.filter(({ exp }) => exp > nowSeconds + withinSeconds);
      await Promise.all(due.map(async (one) => one.exp > nowSeconds && verify(one, "old")));
    },
  };
}

/** A copy of a set that never asks for an unknown kid. */
function copyOf(url: URL, secondsOf: (cacheControl: string) => number) {
  let until = 0;
  const copy = {
    keys: fetchNow(),
    async poll() {
      if (Date.now() < until) return;
      const next = fetchNow();
      await next;
      copy.keys = next;
    },
  };
  async function fetchNow() {
    const response = await fetch(url);
    until = Date.now() + secondsOf(response.headers.get("cache-control") ?? "") * 1000;
    return createLocalJWKSet((await response.json()) as JSONWebKeySet);
  }
  return copy;
}
