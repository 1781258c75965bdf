// Keys in an HSM, used through PKCS#11.

import { randomBytes } from "node:crypto";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { abortable } from "../../base/async.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { ConfigError, SignerError } from "../../base/errors.ts";
import { checkBackendOptions, needsOption } from "../signer/backend-options.ts";
import { abortedBy } from "../signer/external-signer.ts";
import type { SignerBackend } from "../signer/signer.ts";
import type { TokenProcess } from "./child-client.ts";
import { errorFor } from "./failure.ts";
import { type Pkcs11Options, pkcs11Rules } from "./options.ts";
import { Connection, type ConnectionTarget } from "./process-supervisor.ts";
import { type TokenKey, checkKey, pkcs11Signer } from "./signer.ts";
import {
  type KeySelector,
  type Pkcs11Uri,
  formatKeyUri,
  nameOfKey,
  nameOfToken,
  parseKeyUri,
  parseTokenUri,
  withId,
} from "./uri.ts";

/**
 * Creates a backend for keys in PKCS#11 tokens (HSMs, TPMs, smart cards). Each token in use has its own child process,
 * which loads the module and runs until the token's signers are closed. If the module hangs or crashes, jwksd replaces
 * that process. Requires the `pkcs11js` package.
 *
 * While a token is unavailable, signatures fail with a retryable error. When the token is back, jwksd reopens it. A PIN
 * is tried only once. If the token refuses it, this backend throws `ERR_SIGNER_UNAUTHORIZED` until the process is
 * restarted.
 *
 * @example
 * ```ts
 * const backend = pkcs11Backend({ modulePath: "/usr/lib/softhsm/libsofthsm2.so", pin: { file: "/run/secrets/pin" } });
 * const signer = await backend.open("pkcs11:token=jwksd;object=login");
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_SIGNER_URI`
 * @see RFC 7512 (the URIs)
 */
export function pkcs11Backend(options: Pkcs11Options = {}, clock: Clock = systemClock): SignerBackend {
  const given = checkBackendOptions(options, pkcs11Rules);
  const { modulePath, pin, token, sessions = 16, timeoutMs = 5_000 } = given;
  const { environment: variables = [] } = given;
  // The module receives the PIN only through C_Login, even if its variable is on the list.
  const environment = variables.filter(
    (name) => !(pin !== undefined && "environment" in pin && name === pin.environment),
  );
  const tokenForNewKeys = token === undefined ? undefined : parseTokenUri(token);
  const settings = { timeoutMs, environment, clock };
  const connections = new Map<string, Connection>();

  function targetOf(uri: Pkcs11Uri): ConnectionTarget {
    const path = modulePath ?? uri.modulePath;
    if (path === undefined) {
      const ways = 'the modulePath option (pkcs11.modulePath in the signers file) or "module-path" in the URI';
      throw new ConfigError("ERR_SIGNER_URI", `no PKCS#11 module is set; set its path with ${ways}`);
    }
    // A module runs with this process's privileges, so a URI must not select a different module.
    if (uri.modulePath !== undefined && uri.modulePath !== path) {
      const paths = `"module-path" in the URI is ${uri.modulePath}, but the configured modulePath is ${path}`;
      throw new ConfigError(
        "ERR_SIGNER_URI",
        `${paths}; remove "module-path" from the URI, or configure the same module`,
      );
    }
    const pinSource = uri.pinFile === undefined ? pin : { file: uri.pinFile };
    return { modulePath: path, token: uri.token, pin: pinSource, sessions };
  }

  function connectionFor(uri: Pkcs11Uri): Connection {
    const target = targetOf(uri);
    const cacheKey = JSON.stringify(target);
    const connection = connections.get(cacheKey) ?? new Connection(target, settings);
    connections.set(cacheKey, connection);
    return connection;
  }

  /** Runs `task` while the token is open. */
  async function withToken<T>(
    uri: Pkcs11Uri,
    signal: AbortSignal | undefined,
    task: (process: TokenProcess, connection: Connection) => Promise<T>,
  ): Promise<T> {
    const run = async (): Promise<T> => {
      const connection = connectionFor(uri);
      signal?.throwIfAborted();
      connection.acquire();
      try {
        const process = await connection.process();
        signal?.throwIfAborted();
        return await task(process, connection);
      } finally {
        await connection.release();
      }
    };
    try {
      return await abortable(run(), signal);
    } catch (error) {
      throw signal?.aborted === true ? abortedBy(signal, "PKCS#11") : errorFor(error);
    }
  }

  const destroy = (uri: Pkcs11Uri, key: KeySelector, signal?: AbortSignal): Promise<void> =>
    withToken(uri, signal, (process) => process.call<"destroy">({ kind: "destroy", key }));

  /** Destroys a new key after `create` has failed. If that fails too, the error names the key. */
  async function cleanUp(uri: Pkcs11Uri, names: readonly KeySelector[], error: unknown): Promise<unknown> {
    const remaining = new Set<string>();
    for (const name of names) {
      await destroy(uri, name).catch((error: unknown) => {
        const isGone = error instanceof SignerError && error.code === "ERR_SIGNER_KEY_STATE";
        if (!isGone) remaining.add(JSON.stringify(name.label));
      });
    }
    if (remaining.size === 0 || !(error instanceof SignerError)) return error;
    const labels = [...remaining].join(" or ");
    const message = `${error.message}; an unused key with the label ${labels} may remain on the token`;
    return new SignerError(error.code, message);
  }

  return {
    async open(uri, { signal } = {}) {
      const parsed = parseKeyUri(uri);
      return withToken(parsed, signal, async (process, connection) => {
        const found = await process.call<"find">({ kind: "find", key: parsed.key });
        const name = `the key with ${nameOfKey(parsed.key)} on ${nameOfToken(parsed.token)}`;
        const publicKey = await checkKey(process, found, name);
        signal?.throwIfAborted();
        const exact = withId(uri, parsed.key, found.id);
        return pkcs11Signer(connection, { ...exact, publicKey, process, number: found.key });
      });
    },

    async create({ issuer, signal }) {
      if (token === undefined || tokenForNewKeys === undefined) {
        throw needsOption("a PKCS#11 token", "token", "pkcs11", '"pkcs11:token=jwksd"');
      }
      const names: KeySelector[] = [];
      try {
        return await withToken(tokenForNewKeys, signal, async (process, connection) => {
          const generated = await generateKey(process, issuer, names);
          signal?.throwIfAborted();
          // The new key's URI inherits the module and the PIN source from the token's URI.
          const query = token.includes("?") ? token.slice(token.indexOf("?")) : "";
          const uri = formatKeyUri(process.token, generated.selector) + query;
          // That URI also contains the token's serial number, but must resolve to the same process.
          const cacheKey = JSON.stringify(targetOf(parseKeyUri(uri)));
          if (!connections.has(cacheKey)) connections.set(cacheKey, connection);
          return pkcs11Signer(connection, { uri, process, ...generated });
        });
      } catch (error) {
        throw await cleanUp(tokenForNewKeys, names, error);
      }
    },

    async destroy(uri, { signal } = {}) {
      const parsed = parseKeyUri(uri);
      await destroy(parsed, parsed.key, signal);
      return { destroyedAt: clock.now() };
    },
  };
}

/** Generates a key. @param names array that receives every name that the key may have on the token */
async function generateKey(
  process: TokenProcess,
  issuer: string,
  names: KeySelector[],
): Promise<Pick<TokenKey, "selector" | "publicKey" | "number">> {
  const nameFor = (id: Buffer, suffix: string) => {
    const name = { id: Uint8Array.from(id), label: `jwksd ${issuer} ${suffix}` };
    names.push(name);
    return name;
  };
  // The kid depends on the key, so the ID is random until the key exists. On tokens that cannot rename keys, the ID
  // remains random.
  const random = randomBytes(16);
  const first = nameFor(random, random.toString("hex"));
  const generated = await process.call<"generate">({ kind: "generate", ...first });
  const number = generated.key;
  const publicKey = await checkKey(process, generated, "the new key");
  const kid = await calculateJwkThumbprint(publicKey);
  const second = nameFor(Buffer.from(kid, "base64url"), kid);
  const selector = await process.call<"rename">({ kind: "rename", key: number, ...second }).then(
    () => second,
    () => ({ id: generated.id, label: generated.label }),
  );
  return { selector, publicKey, number };
}
