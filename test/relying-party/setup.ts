import assert from "node:assert/strict";
import { inspect } from "node:util";
import * as jose from "jose";
import { JwksdError } from "../../src/index.ts";
import {
  type KeySetEvent,
  type RemoteKeySet,
  type RemoteKeySetOptions,
  createRemoteKeySet,
} from "../../src/verify/relying-party/index.ts";
import { ecKey } from "../support/keys.ts";
import {
  type ScriptedOrigin,
  type Script,
  type SimulatedClock,
  scriptedOrigin,
  served,
  simulatedClock,
} from "../support/simulated.ts";

export const jwksUri = "https://op.example/jwks";

/** A key set, its origin and its time. */
export interface Verifier {
  readonly keys: RemoteKeySet;
  readonly clock: SimulatedClock;
  readonly origin: ScriptedOrigin;
  readonly events: KeySetEvent[];
  /** Returns the kid of the key that is found, or the code of the error. */
  ask(this: void, kid: string): Promise<string>;
  /** Returns the types of the events since the last call. */
  takeEventTypes(this: void): string[];
}

export interface VerifierOptions extends RemoteKeySetOptions {
  readonly clock?: SimulatedClock;
}

/** Creates a key set. Default: its origin serves the kid "a". */
export function verifierOf(script: Script = served(["a"]), options: VerifierOptions = {}): Verifier {
  const { clock = simulatedClock() } = options;
  const origin = scriptedOrigin(clock, script);
  const events: KeySetEvent[] = [];
  const where = options.issuer === undefined ? { jwksUri } : {};
  const onEvent = (event: KeySetEvent): number => events.push(event);
  const keys = createRemoteKeySet({ ...where, fetch: origin.fetch, onEvent, ...options, clock });
  return {
    keys,
    clock,
    origin,
    events,
    ask: (kid) => outcome(async () => keyName(await keys({ kid, alg: "ES256" }), kid)),
    takeEventTypes: () => events.splice(0).map(({ type }) => type),
  };
}

/** Creates a verifier that has fetched once. */
export async function warmVerifier(...args: Parameters<typeof verifierOf>): Promise<Verifier> {
  const verifier = verifierOf(...args);
  await verifier.keys.refresh();
  verifier.origin.requests.length = 0;
  verifier.events.length = 0;
  return verifier;
}

const names = new WeakMap<jose.CryptoKey, string>();

/** Returns the kid if the key belongs to it. */
async function keyName(key: jose.CryptoKey, kid: string): Promise<string> {
  const name = names.get(key) ?? ((await jose.exportJWK(key)).x === ecKey(kid).x ? kid : "another key");
  names.set(key, name);
  return name;
}

/** Returns the value as a string, or the code of the error, which must be one of this project's. */
export async function outcome(attempt: () => unknown): Promise<string> {
  try {
    return String(await attempt());
  } catch (error) {
    assert.ok(error instanceof JwksdError, inspect(error));
    return error.code;
  }
}

/** Returns the error with which an attempt fails. */
export async function failure<T extends JwksdError>(attempt: () => unknown): Promise<T> {
  try {
    await attempt();
  } catch (error) {
    assert.ok(error instanceof JwksdError, inspect(error));
    return error as T;
  }
  return assert.fail("the attempt succeeded");
}

/** Reports whether a promise is pending. */
export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  const pending = Symbol("pending");
  return (await Promise.race([promise, Promise.resolve(pending)])) === pending;
}
