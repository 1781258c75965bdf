// The common part of all key services: deadlines, errors, and how a key is opened, made and destroyed.
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { importJWK } from "jose/key/import";
import { sleep, withDeadline } from "../../base/async.ts";
import type { Bytes } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import { ConfigError, JwksdError, SignerError, keyError } from "../../base/errors.ts";
import type { EcPublicJwk } from "../jwk/public.ts";
import { type KeyInput, readKey } from "../jwk/read.ts";
import { type Optional, type Given, textThat } from "../../base/options.ts";
import { slowTimeoutMs } from "../signer/backend-options.ts";
import { abortedBy, externalSigner, notP256 } from "../signer/external.ts";
import type { ExternalSigner, SignerBackend } from "../signer/signer.ts";

/** Time limits of one key service. They include all retries of its SDK. */
export interface KeyServiceOptions {
  /** Time for one signature, in milliseconds. Default: 5000. */
  readonly timeoutMs?: Optional<number>;
}

/** Codes for the errors of a service, each with what to do. */
const advice = {
  ERR_SIGNER_THROTTLED: "the key service asks to slow down; try again later",
  ERR_SIGNER_UNAVAILABLE: "the key service cannot be reached or failed; try again later",
  ERR_SIGNER_UNAUTHORIZED: "the key service refuses these credentials; correct the credentials or the policy",
  ERR_SIGNER_KEY_STATE: "the key is disabled, deleted or not there",
  ERR_SIGNER_BAD_SIGNATURE: "the response of the key service does not fit the request",
} as const;

export type FailureCode = keyof typeof advice;

/** Makes the error of a failure. @param detail a name, code or status, never free text of the service */
export function failure(name: string, code: FailureCode, detail: string): SignerError {
  return new SignerError(code, `${name}: ${advice[code]} (${detail})`);
}

/** One call of a service, with all its requests and retries. */
export interface ServiceCall<Client> {
  readonly client: Client;
  /** How messages name the key: its URI, if it has one already. */
  readonly name: string;
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  /** Waits a moment before the next poll. */
  readonly pause: () => Promise<void>;
}

/** A call about a key. */
export interface KeyCall<Key, Client> extends ServiceCall<Client> {
  readonly key: Key;
  /** Whether it was just made, so that some servers of the service may not know it yet. */
  readonly isNew: boolean;
}

/** The specific part of one key service. `Key` is a parsed URI, `Client` sends requests. */
export interface KeyService<Key, Client> {
  /** How messages name the place of new keys. */
  readonly place: string;
  /** How a URI is written. */
  readonly uriForm: string;
  /** `undefined` if the URI does not name an immutable key version. */
  parse(uri: string): Key | undefined;
  /**
   * Makes a client. It need not be closed: idle connections keep no process alive.
   *
   * @param key `undefined` for a new key
   * @throws ConfigError `ERR_OPTION_INVALID` when no option says where new keys are made; `ERR_PACKAGE_MISSING`
   */
  connect(key: Key | undefined): Client | Promise<Client>;
  /** Checks that a key may sign, and reads its public half. */
  publicKey(call: KeyCall<Key, Client>): Promise<KeyInput>;
  /** Signs. @returns 64 bytes, r then s */
  sign(call: KeyCall<Key, Client>, digest: Bytes): Promise<Uint8Array>;
  /** Makes a key. @returns its URI */
  create(call: ServiceCall<Client>, issuer: string): Promise<string>;
  /** Tags a new key with issuer and kid, if {@link create} does not. */
  tag?(call: KeyCall<Key, Client>, issuer: string, kid: string): Promise<unknown>;
  /** Destroys a key. @returns when the key is gone, in epoch milliseconds */
  destroy(call: KeyCall<Key, Client>): Promise<number>;
  /** Classifies an error of the SDK. The error is not kept as `cause`, because it may hold credentials. */
  failureOf(error: unknown): readonly [FailureCode, detail: string];
}

const pauseMs = 250;

/** Makes a backend of a key service. */
export function keyServiceBackend<Key, Client>(
  service: KeyService<Key, Client>,
  { timeoutMs = 5000 }: Given<KeyServiceOptions>,
  clock: Clock,
): SignerBackend {
  async function run<T>(
    name: string,
    timeoutMs: number,
    signal: AbortSignal | undefined,
    work: (limits: Omit<ServiceCall<Client>, "client">) => Promise<T>,
  ): Promise<T> {
    const expired = (): SignerError => {
      const rule = `the key service did not answer within ${timeoutMs} ms; try again later`;
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
      throw failure(name, ...service.failureOf(error));
    }
  }

  function parse(uri: string): Key {
    const key = service.parse(uri);
    if (key !== undefined) return key;
    // A wrong URI may hold a password, so the message has its scheme only.
    const scheme = /^([\w+.-]{1,32}):/.exec(uri)?.[1];
    const what = scheme === undefined ? "text" : `${scheme}: URI`;
    const rule = `this ${what} names no immutable key version; write it as ${service.uriForm}`;
    throw new ConfigError("ERR_SIGNER_URI", rule);
  }

  async function read(uri: string, signal: AbortSignal | undefined, isNew: boolean) {
    const key = parse(uri);
    return run(uri, slowTimeoutMs, signal, async (limits) => {
      const client = await service.connect(key);
      const input = await service.publicKey({ ...limits, client, key, isNew });
      return { client, key, isNew, publicKey: await p256PublicKey(input, uri) };
    });
  }

  function signerOf(uri: string, { publicKey, ...rest }: Awaited<ReturnType<typeof read>>): ExternalSigner {
    return externalSigner({
      uri,
      publicKey,
      sign: (digest, signal) => run(uri, timeoutMs, signal, (limits) => service.sign({ ...limits, ...rest }, digest)),
    });
  }

  async function destroy(uri: string, signal?: AbortSignal): Promise<{ destroyedAt: number }> {
    const key = parse(uri);
    const destroyedAt = await run(uri, slowTimeoutMs, signal, async (limits) =>
      service.destroy({ ...limits, client: await service.connect(key), key, isNew: false }),
    );
    return { destroyedAt };
  }

  return {
    open: async (uri, { signal } = {}) => signerOf(uri, await read(uri, signal, false)),
    destroy: (uri, { signal } = {}) => destroy(uri, signal),

    async create({ issuer, signal }) {
      const uri = await run(service.place, slowTimeoutMs, signal, async (limits) =>
        service.create({ ...limits, client: await service.connect(undefined) }, issuer),
      );
      try {
        const made = await read(uri, signal, true);
        // The kid is the thumbprint of the public key, so it is known only now.
        const kid = await calculateJwkThumbprint(made.publicKey);
        await run(uri, slowTimeoutMs, signal, async (limits) => service.tag?.({ ...limits, ...made }, issuer, kid));
        return signerOf(uri, made);
      } catch (error) {
        // Failed attempts must not leave keys behind.
        await destroy(uri).catch(() => {});
        throw error;
      }
    },
  };
}

/** A value for a message, if it is a number or a single word. */
export function word(value: unknown): string | undefined {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && /^[\w.:-]{1,64}$/.test(value) ? value : undefined;
}

/** The code of an HTTP status without further detail. @see RFC 9110 section 15 */
export function codeOfStatus(status: number): FailureCode {
  if (status === 401 || status === 403) return "ERR_SIGNER_UNAUTHORIZED";
  if (status === 429) return "ERR_SIGNER_THROTTLED";
  return [400, 404, 409, 410].includes(status) ? "ERR_SIGNER_KEY_STATE" : "ERR_SIGNER_UNAVAILABLE";
}

export const keyPrefixRule = textThat(
  "up to 32 letters, digits and hyphens, beginning with a letter or digit",
  (value) => /^[A-Za-z0-9][A-Za-z0-9-]{0,31}$/.test(value),
);

/** A unique name for a key, with the host of the issuer. */
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
    throw keyError("ERR_KEY_FORMAT", name, "the public key is no point on P-256");
  }
  return publicJwk;
}
