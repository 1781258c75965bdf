import { readFile } from "node:fs/promises";
import { SignerError } from "../errors.ts";
import { type Failure, kindOfStatus, word } from "./remote.ts";

/** How to get into a Vault or OpenBao. */
export interface VaultAccess {
  /** File that holds the token, such as the sink of a Vault Agent; read again when the token is refused and the file has changed. */
  readonly tokenFile?: string | undefined;
  /** Environment variable that holds the token, where there is no file. Default: `VAULT_TOKEN`. */
  readonly tokenVariable?: string | undefined;
  /** Namespace of Vault Enterprise, HCP Vault or OpenBao. Default: none. */
  readonly namespace?: string | undefined;
  /** Default: the `fetch` of the platform. */
  readonly fetch?: typeof globalThis.fetch | undefined;
}

const maxBytes = 256 * 1024;

/** An answer that is of no use; it keeps the status only, since a body may quote what was sent. */
class VaultError extends Error {
  readonly failure: Failure;
  constructor(failure: Failure) {
    super(failure.detail);
    this.failure = failure;
  }
}

/** The kind of an error of {@link vaultClient}. */
export function kindOfVaultError(error: unknown): Failure {
  if (error instanceof VaultError) return error.failure;
  const reason = (error as { cause?: { code?: unknown } } | undefined)?.cause?.code;
  return { code: "ERR_SIGNER_UNAVAILABLE", detail: word(reason) ?? "no connection" };
}

/** Gives the `data` of the answer. */
export type VaultRequest = (method: string, url: string, signal: AbortSignal, body?: object) => Promise<unknown>;

/** Sends requests with the token as it is now; what one throws is for {@link kindOfVaultError}. */
export function vaultClient(options: VaultAccess): VaultRequest {
  const { namespace, fetch = globalThis.fetch } = options;
  let token: string | undefined;

  async function send(token: string, ...[method, url, signal, body]: Parameters<VaultRequest>): Promise<Response> {
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
      // A connection that was closed while it was idle is found out by the next request, and all of ours may be sent twice.
      return fetch(url, init);
    }
  }

  return async (...request) => {
    const sent = (token ??= await readToken(options));
    let response = await send(sent, ...request);
    if (response.status === 403) {
      // The agent that renews the token may have put a new one there.
      token = await readToken(options);
      if (token !== sent) {
        await response.body?.cancel();
        response = await send(token, ...request);
      }
    }
    const { status } = response;
    const text = await readBounded(response);
    if (status === 204) return undefined;
    if (status !== 200) {
      const code = status >= 300 && status < 400 ? "ERR_SIGNER_UNAVAILABLE" : kindOfStatus(status);
      throw new VaultError({ code, detail: `status ${status}` });
    }
    try {
      return (JSON.parse(text) as { data?: unknown } | null)?.data;
    } catch {
      throw new VaultError({ code: "ERR_SIGNER_UNAVAILABLE", detail: "the body is not JSON" });
    }
  };
}

async function readBounded(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > maxBytes)
      throw new VaultError({ code: "ERR_SIGNER_UNAVAILABLE", detail: "the body is too large" });
  }
  return text + decoder.decode();
}

/** The token as it is now; what is wrong with it is said without showing it. */
async function readToken({ tokenFile, tokenVariable = "VAULT_TOKEN" }: VaultAccess): Promise<string> {
  const where = tokenFile ?? `environment variable ${tokenVariable}`;
  const text =
    tokenFile === undefined
      ? process.env[tokenVariable]
      : await readFile(tokenFile, "utf8").catch((error: NodeJS.ErrnoException) => {
          throw unauthorized(`the token file ${tokenFile} cannot be read (${error.code})`);
        });
  const token = text?.trim() ?? "";
  if (!/^[\x21-\x7e]+$/.test(token)) throw unauthorized(`no token in ${where}`);
  return token;
}

function unauthorized(message: string): SignerError {
  return new SignerError("ERR_SIGNER_UNAUTHORIZED", `Vault: ${message}`);
}
