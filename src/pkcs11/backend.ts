import { randomBytes } from "node:crypto";
import { calculateJwkThumbprint } from "jose";
import { abortable } from "../async.ts";
import { ConfigError, SignerError } from "../errors.ts";
import type { EcPublicJwk } from "../jwk/public.ts";
import { needsOption } from "../signer/backend-options.ts";
import type { SignerBackend } from "../signer/signer.ts";
import { signerErrorOf } from "./call-failure.ts";
import { Connection, type ConnectionTarget } from "./connection.ts";
import type { KeySelector } from "./messages.ts";
import { keyName, percentEncoded, tokenName } from "./names.ts";
import { type Pkcs11Options, checkOptions } from "./options.ts";
import { Pkcs11Signer, abortedBy, checkKey } from "./signer.ts";
import { type Pkcs11Uri, formatKeyUri, parseKeyUri, parseTokenUri } from "./uri.ts";
import type { TokenProcess } from "./token-process.ts";

/**
 * Keys in PKCS#11 tokens. Each token in use has a process of its own, in which the module is loaded, so that one that hangs or crashes
 * is replaced while this process goes on. Keeps the process alive until its signers are closed. Needs the package `pkcs11js`.
 *
 * A token that goes away makes retryable errors, and is opened again by itself when it is back. A PIN is tried once: when it is
 * refused, this backend answers `ERR_SIGNER_UNAUTHORIZED` from then on.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_SIGNER_URI`
 * @see RFC 7512 for the URIs
 */
export function pkcs11Backend(options: Pkcs11Options = {}): SignerBackend {
  const { modulePath, pin, token, sessions, timeoutMs, slowTimeoutMs, clock } = checkOptions(options);
  const tokenForNewKeys = token === undefined ? undefined : parseTokenUri(token);
  const hiddenVariables = pin !== undefined && "environment" in pin ? [pin.environment] : [];
  const settings = { timeoutMs, slowTimeoutMs, hiddenVariables, clock };
  const connections = new Map<string, Connection>();

  function targetOf(uri: Pkcs11Uri): ConnectionTarget {
    const path = modulePath ?? uri.modulePath;
    if (path === undefined) {
      const ways =
        '--pkcs11-module of jwksd signer check, the option modulePath (pkcs11.modulePath of the signers file) or "module-path" of the URI';
      throw new ConfigError("ERR_SIGNER_URI", `no PKCS#11 module is given; give its path by ${ways}`);
    }
    // A module runs as code of this process's user, so that a URI does not override what was configured.
    if (uri.modulePath !== undefined && uri.modulePath !== path) {
      const paths = `"module-path" of the URI is ${uri.modulePath}, and the configured modulePath is ${path}`;
      throw new ConfigError("ERR_SIGNER_URI", `${paths}; a URI cannot choose another module than the configured one`);
    }
    return {
      modulePath: path,
      token: uri.token,
      pin: uri.pinFile === undefined ? pin : { file: uri.pinFile },
      sessions,
    };
  }

  function connectionFor(uri: Pkcs11Uri): Connection {
    const target = targetOf(uri);
    const name = JSON.stringify(target);
    const connection = connections.get(name) ?? new Connection(target, settings);
    connections.set(name, connection);
    return connection;
  }

  /** The URIs of new keys name the token more exactly, and lead to the process that there is. */
  function alsoFor(uri: string, connection: Connection): void {
    const name = JSON.stringify(targetOf(parseKeyUri(uri)));
    if (!connections.has(name)) connections.set(name, connection);
  }

  /** Runs `task` with the token open; a signer that it returns holds on to the token. */
  function withToken<T>(
    uri: Pkcs11Uri,
    signal: AbortSignal | undefined,
    task: (process: TokenProcess, connection: Connection) => Promise<T>,
  ): Promise<T> {
    const run = async (): Promise<T> => {
      const connection = connectionFor(uri);
      signal?.throwIfAborted();
      connection.acquire();
      let result: T | undefined;
      try {
        const process = await connection.process();
        signal?.throwIfAborted();
        result = await task(process, connection);
        return result;
      } catch (error) {
        throw signerErrorOf(error);
      } finally {
        if (!(result instanceof Pkcs11Signer)) await connection.release();
      }
    };
    return abortable(run(), signal).catch((error: unknown) => {
      throw signal?.aborted === true ? abortedBy(signal) : error;
    });
  }

  return {
    async open(uri, { signal } = {}) {
      const parsed = parseKeyUri(uri);
      return withToken(parsed, signal, async (process, connection) => {
        const found = await process.call<"find">({ kind: "find", key: parsed.key });
        const publicKey = await checkKey(
          process,
          found,
          `the key with ${keyName(parsed.key)} of ${tokenName(parsed.token)}`,
        );
        signal?.throwIfAborted();
        const exact = withId(uri, parsed.key, found.id);
        return new Pkcs11Signer(connection, exact.uri, exact.key, { process, key: found.key, publicKey });
      });
    },
    async create({ issuer, signal }) {
      if (tokenForNewKeys === undefined) {
        throw needsOption("a PKCS#11 token", "token", "pkcs11", '"pkcs11:token=jwksd"');
      }
      // A new key is found with the module and the PIN that its token was found with.
      const query = token?.includes("?") === true ? token.slice(token.indexOf("?")) : "";
      const names: KeySelector[] = [];
      try {
        return await withToken(tokenForNewKeys, signal, async (process, connection) => {
          const made = await createKey(process, issuer, names);
          signal?.throwIfAborted();
          const uri = formatKeyUri(process.token, made.selector) + query;
          alsoFor(uri, connection);
          return new Pkcs11Signer(connection, uri, made.selector, {
            process,
            key: made.key,
            publicKey: made.publicKey,
          });
        });
      } catch (error) {
        // A key that nobody will know of is not left behind. The process that may have made it may be gone: the next one looks.
        const left: KeySelector[] = [];
        for (const name of names) {
          const call = (process: TokenProcess) => process.call<"destroy">({ kind: "destroy", key: name });
          await withToken(tokenForNewKeys, undefined, call).catch((failure: unknown) => {
            const isGone = failure instanceof SignerError && failure.code === "ERR_SIGNER_KEY_STATE";
            if (!isGone) left.push(name);
          });
        }
        throw left.length === 0 || !(error instanceof SignerError) ? error : withRemnant(error, left);
      }
    },
    async destroy(uri, { signal } = {}) {
      const parsed = parseKeyUri(uri);
      await withToken(parsed, signal, (process) => process.call<"destroy">({ kind: "destroy", key: parsed.key }));
      return { destroyedAt: clock.now() };
    },
  };
}

/** A label may come to be on a second key. With the id of the one that was found, the URI goes on naming that. */
function withId(uri: string, key: KeySelector, id: Uint8Array): { readonly uri: string; readonly key: KeySelector } {
  if (key.id !== undefined || id.length === 0) return { uri, key };
  const [path, ...query] = uri.split("?");
  return { uri: [`${path};id=${percentEncoded(id)}`, ...query].join("?"), key: { ...key, id } };
}

/** @param names is given every name that the key may have */
async function createKey(
  process: TokenProcess,
  issuer: string,
  names: KeySelector[],
): Promise<{ readonly selector: KeySelector; readonly key: number; readonly publicKey: EcPublicJwk }> {
  // The kid is known when the key is there. Until then, and on tokens that cannot rename, its id is a random one.
  const id = randomBytes(16);
  const label = `jwksd ${issuer} ${id.toString("hex")}`;
  names.push({ id, label });
  const generated = await process.call<"generate">({ kind: "generate", label, id });
  const first: KeySelector = { id: generated.id, label: generated.label };
  const publicKey = await checkKey(process, generated, "the new key");
  const kid = await calculateJwkThumbprint(publicKey);
  names.push({ id: Buffer.from(kid, "base64url"), label: `jwksd ${issuer} ${kid}` });
  const selector = await renamed(process, generated.key, first, `jwksd ${issuer} ${kid}`, kid);
  return { selector, key: generated.key, publicKey };
}

/** The same error, which names what may still be on the token. */
function withRemnant({ code, message }: SignerError, left: readonly KeySelector[]): SignerError {
  const labels = [...new Set(left.map(({ label }) => JSON.stringify(label)))].join(" or ");
  return new SignerError(code, `${message}; a key that nothing uses may be left on the token, labelled ${labels}`);
}

/** How the key is called then. */
async function renamed(
  process: TokenProcess,
  key: number,
  before: KeySelector,
  label: string,
  kid: string,
): Promise<KeySelector> {
  const id = Buffer.from(kid, "base64url");
  try {
    await process.call<"rename">({ kind: "rename", key, label, id });
    return { id: Uint8Array.from(id), label };
  } catch {
    return before;
  }
}
