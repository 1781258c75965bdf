import { readFile } from "node:fs/promises";
import { bytesWithin } from "../../base/bytes.ts";
import { SignerError } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import type { Optional, Given } from "../../base/options.ts";
import { type FailureCode, type ServiceCall, codeOfStatus, failure, safeDetail } from "./key-service.ts";

/** Options for accessing a Vault or OpenBao server. */
export interface VaultAccess {
  /**
   * File that contains the token, such as a Vault Agent's sink. jwksd rereads it if the server rejects the token.
   * Default: none.
   */
  readonly tokenFile?: Optional<string>;
  /** Environment variable that contains the token, if there is no file. Default: `VAULT_TOKEN`. */
  readonly tokenVariable?: Optional<string>;
  /** Namespace in Vault Enterprise, HCP Vault or OpenBao. Default: none. */
  readonly namespace?: Optional<string>;
  /** Sends the requests. Default: the platform's `fetch`. */
  readonly fetch?: Optional<typeof globalThis.fetch>;
}

const maxBytes = 256 * 1024;

/** Classifies an error from `fetch`. */
export function classifyError(error: unknown): readonly [FailureCode, detail: string] {
  const reason = (error as { cause?: { code?: unknown } } | undefined)?.cause?.code;
  return ["ERR_SIGNER_UNAVAILABLE", safeDetail(reason) ?? "no connection"];
}

type VaultCall = Pick<ServiceCall<unknown>, "name" | "signal">;

/** Sends a request. @returns the response's `data` member */
export type VaultRequest = (call: VaultCall, method: string, url: string, body?: object) => Promise<unknown>;

/** Creates a client that sends the current token with each request. */
export function vaultClient(options: Given<VaultAccess>): VaultRequest {
  const { namespace, fetch = globalThis.fetch } = options;
  let token: string | undefined;

  async function send(token: string, ...[{ signal }, method, url, body]: Parameters<VaultRequest>): Promise<Response> {
    const init: RequestInit = {
      method,
      signal,
      redirect: "manual",
      headers: {
        "X-Vault-Token": token,
        "X-Vault-Request": "true",
        ...(namespace !== undefined && { "X-Vault-Namespace": namespace }),
        ...(body !== undefined && { "Content-Type": "application/json" }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    };
    try {
      return await fetch(url, init);
    } catch (error) {
      if (signal.aborted) throw error;
      // The server may have closed the idle connection. Retrying is safe for every request here.
      return fetch(url, init);
    }
  }

  return async (...request) => {
    const sent = (token ??= await readVaultToken(options));
    let response = await send(sent, ...request);
    if (response.status === 403) {
      // An agent may have renewed the token in the meantime.
      token = await readVaultToken(options);
      if (token !== sent) {
        await response.body?.cancel();
        response = await send(token, ...request);
      }
    }
    const { status } = response;
    const [{ name }] = request;
    const body = await bytesWithin(response.body, maxBytes);
    if (body === undefined) throw failure(name, "ERR_SIGNER_UNAVAILABLE", "the body is too large");
    if (status === 204) return undefined;
    // The body is omitted, because it may quote the request.
    if (status !== 200) throw failure(name, codeOfStatus(status), `status ${status}`);
    const parsed = jsonOf(new TextDecoder().decode(body)) as { data?: unknown } | null | undefined;
    if (parsed === undefined) throw failure(name, "ERR_SIGNER_UNAVAILABLE", "the body is not JSON");
    return parsed?.data;
  };
}

/** Reads the token. Error messages never include it. */
async function readVaultToken({ tokenFile, tokenVariable = "VAULT_TOKEN" }: Given<VaultAccess>): Promise<string> {
  const source = tokenFile ?? `the environment variable ${tokenVariable}`;
  const text =
    tokenFile === undefined
      ? process.env[tokenVariable]
      : await readFile(tokenFile, "utf8").catch((error: NodeJS.ErrnoException) => {
          throw unauthorized(`the token file ${tokenFile} cannot be read (${error.code})`);
        });
  const token = text?.trim() ?? "";
  if (!/^[\x21-\x7e]+$/.test(token)) throw unauthorized(`there is no token in ${source}`);
  return token;
}

function unauthorized(message: string): SignerError {
  return new SignerError("ERR_SIGNER_UNAUTHORIZED", `Vault: ${message}`);
}
