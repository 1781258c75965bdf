// Code that all key services share: deadlines, errors, and opening, generating and destroying a key.

import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { importJWK } from "jose/key/import";
import { sleep, withDeadline } from "../../base/async.ts";
import type { Bytes } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import { ConfigError, JwksdError, SignerError, keyError } from "../../base/errors.ts";
import { type Optional, type Given, stringThat } from "../../base/options.ts";
import type { EcPublicJwk } from "../jwk/public-members.ts";
import { type KeyInput, readKey } from "../jwk/read-key.ts";
import { slowTimeoutMs } from "../signer/backend-options.ts";
import { abortedBy, externalSigner, notP256 } from "../signer/external-signer.ts";
import type { SignerBackend } from "../signer/signer.ts";

/** Options that all key services share. */
export interface KeyServiceOptions {
  /** Time limit for one signature, including all of the SDK's retries, in milliseconds. Default: 5000. */
  readonly timeoutMs?: Optional<number>;
}

/** Message and remedy for each error code. */
const advice = {
  ERR_SIGNER_THROTTLED: "the key service is throttling requests; retry later",
  ERR_SIGNER_UNAVAILABLE: "the key service is unreachable or has failed; retry later",
  ERR_SIGNER_UNAUTHORIZED: "the key service does not accept these credentials; correct the credentials or the policy",
  ERR_SIGNER_KEY_STATE: "the key is disabled, deleted or missing",
  ERR_SIGNER_BAD_SIGNATURE: "the key service's response does not match the request",
} as const;

export type FailureCode = keyof typeof advice;

/** Creates the error for a failure. @param detail a name, code or status; never free text from the service */
export function failure(name: string, code: FailureCode, detail: string): SignerError {
  return new SignerError(code, `${name}: ${advice[code]} (${detail})`);
}

/** One call to a service, including all its requests and retries. */
export interface ServiceCall<Client> {
  readonly client: Client;
  /** The key's name in messages. This is the key's URI once the key has one. */
  readonly name: string;
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  /** Waits briefly before the next poll. */
  readonly pause: () => Promise<void>;
}

/** A service call for a specific key. */
export interface KeyCall<Key, Client> extends ServiceCall<Client> {
  readonly key: Key;
  /** Whether the key was just generated, in which case some of the service's servers might not know about it yet. */
  readonly isNew: boolean;
}

/** The part of a key backend that differs between key services. `Key` is a parsed URI, and `Client` sends requests. */
export interface KeyService<Key, Client> {
  /** Name of the place where new keys are generated, for messages. */
  readonly place: string;
  /** Template for this service's key URIs, shown in messages. */
  readonly uriForm: string;
  /** Parses a key's URI. Returns `undefined` if it does not name an immutable key version. */
  parse(uri: string): Key | undefined;
  /**
   * Creates a client. It need not be closed, because idle connections do not keep a process alive.
   *
   * @param key `undefined` for a new key
   * @throws ConfigError `ERR_OPTION_INVALID` if no option says where to generate new keys, `ERR_PACKAGE_MISSING`
   */
  connect(key: Key | undefined): Client | Promise<Client>;
  /** Checks that a key can sign and returns its public key. */
  publicKey(call: KeyCall<Key, Client>): Promise<KeyInput>;
  /** Signs a digest. @returns 64 bytes, r then s */
  sign(call: KeyCall<Key, Client>, digest: Bytes): Promise<Uint8Array>;
  /** Generates a key. @returns its URI */
  create(call: ServiceCall<Client>, issuer: string): Promise<string>;
  /** Tags a new key with its issuer and kid, if {@link create} does not. */
  tag?(call: KeyCall<Key, Client>, issuer: string, kid: string): Promise<unknown>;
  /** Destroys a key. @returns the time at which it will be gone, in epoch milliseconds */
  destroy(call: KeyCall<Key, Client>): Promise<number>;
  /**
   * Classifies an error from the SDK. The SDK's error is not used as the `cause` of another error, because it may
   * contain credentials.
   */
  classifyError(error: unknown): readonly [FailureCode, detail: string];
}

const pauseMs = 250;

/** Creates a key backend for a key service. */
export function keyServiceBackend<Key, Client>(
  service: KeyService<Key, Client>,
  { timeoutMs = 5000 }: Given<KeyServiceOptions>,
  clock: Clock,
): SignerBackend {
  async function run<T>(
    name: string,
    timeoutMs: number,
    signal: AbortSignal | undefined,
    work: (call: Omit<ServiceCall<Client>, "client">) => Promise<T>,
  ): Promise<T> {
    const expired = (): SignerError => {
      const rule = `the key service did not respond within ${timeoutMs} ms; retry later`;
      return new SignerError("ERR_SIGNER_TIMEOUT", `${name}: ${rule}`);
    };
    const aborted = (signal: AbortSignal): SignerError => abortedBy(signal, name);
    try {
      return await withDeadline(
        (signal) => work({ name, signal, timeoutMs, pause: () => sleep(pauseMs, clock, signal) }),
        { clock, timeoutMs, signal, expired, aborted },
      );
    } catch (error) {
      if (error instanceof JwksdError) throw error;
      throw failure(name, ...service.classifyError(error));
    }
  }

  function parse(uri: string): Key {
    const key = service.parse(uri);
    if (key !== undefined) return key;
    // An invalid URI may contain a password, so the message contains only its scheme.
    const scheme = /^([\w+.-]{1,32}):/.exec(uri)?.[1];
    const kind = scheme === undefined ? "text" : `${scheme}: URI`;
    const rule = `this ${kind} does not name an immutable key version; write it as ${service.uriForm}`;
    throw new ConfigError("ERR_SIGNER_URI", rule);
  }

  async function open(uri: string, signal: AbortSignal | undefined, isNew: boolean) {
    const key = parse(uri);
    return run(uri, slowTimeoutMs, signal, async (call) => {
      const about = { client: await service.connect(key), key, isNew };
      const publicKey = await p256PublicKey(await service.publicKey({ ...call, ...about }), uri);
      const signer = externalSigner({
        uri,
        publicKey,
        sign: (digest, signal) => run(uri, timeoutMs, signal, (call) => service.sign({ ...call, ...about }, digest)),
      });
      return { about, publicKey, signer };
    });
  }

  async function destroy(uri: string, signal?: AbortSignal): Promise<{ destroyedAt: number }> {
    const key = parse(uri);
    const destroyedAt = await run(uri, slowTimeoutMs, signal, async (call) =>
      service.destroy({ ...call, client: await service.connect(key), key, isNew: false }),
    );
    return { destroyedAt };
  }

  return {
    open: async (uri, { signal } = {}) => (await open(uri, signal, false)).signer,
    destroy: (uri, { signal } = {}) => destroy(uri, signal),

    async create({ issuer, signal }) {
      const uri = await run(service.place, slowTimeoutMs, signal, async (call) =>
        service.create({ ...call, client: await service.connect(undefined) }, issuer),
      );
      try {
        const { about, publicKey, signer } = await open(uri, signal, true);
        // The kid is the public key's thumbprint, which was not known until now.
        const kid = await calculateJwkThumbprint(publicKey);
        await run(uri, slowTimeoutMs, signal, async (call) => service.tag?.({ ...call, ...about }, issuer, kid));
        return signer;
      } catch (error) {
        // A failed attempt must not leave a key behind.
        await destroy(uri).catch(() => {});
        throw error;
      }
    },
  };
}

/**
 * Returns a value as text for a message, but only if it is a number or a single word, because neither can contain a
 * quoted secret.
 */
export function safeDetail(value: unknown): string | undefined {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && /^[\w.:-]{1,64}$/.test(value) ? value : undefined;
}

/** Returns the error code for an HTTP status when nothing else is known about the failure. @see RFC 9110 section 15 */
export function codeOfStatus(status: number): FailureCode {
  if (status === 401 || status === 403) return "ERR_SIGNER_UNAUTHORIZED";
  if (status === 429) return "ERR_SIGNER_THROTTLED";
  return [400, 404, 409, 410].includes(status) ? "ERR_SIGNER_KEY_STATE" : "ERR_SIGNER_UNAVAILABLE";
}

export const keyPrefixRule = stringThat(
  "up to 32 letters, digits and hyphens, beginning with a letter or digit",
  (value) => /^[A-Za-z0-9][A-Za-z0-9-]{0,31}$/.test(value),
);

/** Returns a unique key name that contains the issuer's host. */
export function newKeyName(prefix: string, issuer: string): string {
  const host = new URL(issuer).hostname.replaceAll(/[^A-Za-z0-9]+/g, "-").slice(0, 64);
  return `${prefix}-${host}-${crypto.randomUUID().slice(-12)}`;
}

/** Checks a public key. @throws KeyMaterialError `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED` */
async function p256PublicKey(input: KeyInput, name: string): Promise<EcPublicJwk> {
  const { publicJwk } = await readKey(input, name);
  if (publicJwk.kty !== "EC") throw notP256(name, publicJwk.kty);
  if (publicJwk.crv !== "P-256") throw notP256(name, publicJwk.crv);
  try {
    await importJWK({ ...publicJwk }, "ES256");
  } catch {
    throw keyError("ERR_KEY_FORMAT", name, "the public key is not a point on P-256");
  }
  return publicJwk;
}
