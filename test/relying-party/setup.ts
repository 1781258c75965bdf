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
  /** The kid whose key comes back, or the code of the error. */
  ask(this: void, kid: string): Promise<string>;
  /** Event types so far, which are then forgotten. */
  happened(this: void): string[];
}

export interface VerifierOptions extends RemoteKeySetOptions {
  readonly clock?: SimulatedClock;
}

/** Default: an origin that serves the kid "a". */
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
    happened: () => events.splice(0).map(({ type }) => type),
  };
}

/** A verifier that has fetched once. */
export async function warmVerifier(...args: Parameters<typeof verifierOf>): Promise<Verifier> {
  const verifier = verifierOf(...args);
  await verifier.keys.refresh();
  verifier.origin.requests.length = 0;
  verifier.events.length = 0;
  return verifier;
}

const names = new WeakMap<jose.CryptoKey, string>();

/** The kid, if the key is that of the kid. */
async function keyName(key: jose.CryptoKey, kid: string): Promise<string> {
  const name = names.get(key) ?? ((await jose.exportJWK(key)).x === ecKey(kid).x ? kid : "another key");
  names.set(key, name);
  return name;
}

/** The value, or the code of the error, which must be one of this project's. */
export async function outcome(attempt: () => unknown): Promise<string> {
  try {
    return String(await attempt());
  } catch (error) {
    assert.ok(error instanceof JwksdError, inspect(error));
    return error.code;
  }
}

/** The error that an attempt ends in. */
export async function failure<T extends JwksdError>(attempt: () => unknown): Promise<T> {
  try {
    await attempt();
  } catch (error) {
    assert.ok(error instanceof JwksdError, inspect(error));
    return error as T;
  }
  return assert.fail("it succeeded");
}

/** Whether a promise is settled by now. */
export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  const pending = Symbol("pending");
  return (await Promise.race([promise, Promise.resolve(pending)])) === pending;
}
