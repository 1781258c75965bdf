import { Agent, type IncomingMessage, request as httpRequest } from "node:http";
import { withDeadline } from "../async.ts";
import { systemClock } from "../clock.ts";
import { ConfigError, JwksdError, SignerError, TokenError } from "../errors.ts";
import { type Rules, checkOptions, number, text, timeout } from "../options.ts";
import type { Claims, SignOptions } from "../token/sign.ts";

/** Options of `createSignClient`. */
export interface SignClientOptions {
  /** Path of a socket of `jwksd serve --sign-socket`. Required. */
  readonly socket: string;
  /** Time for one token, in milliseconds. Default: 10,000. */
  readonly timeoutMs?: number | undefined;
  /** Connections at once; other calls wait for one. Default: 16. */
  readonly maxConnections?: number | undefined;
}

/** Signs tokens as a provider does, through the sign socket of another process that has the keys. */
export interface SignClient {
  /**
   * Signs claims with the active key, as `provider.sign` does.
   *
   * @throws TokenError `ERR_CLAIMS_INVALID`; `ERR_CLAIMS_FORBIDDEN` by the policy of the socket
   * @throws SignerError those of `provider.sign`; `ERR_SIGNER_FENCED`; `ERR_SIGNER_UNAVAILABLE` where nobody listens,
   * `ERR_SIGNER_UNAUTHORIZED` where this user may not connect
   */
  sign(this: void, claims: Claims, options: SignOptions): Promise<string>;
  /** Closes the connections that are idle. */
  close(this: void): void;
}

const rules: Rules<SignClientOptions> = { socket: text, timeoutMs: timeout, maxConnections: number(1) };

/**
 * A client of a sign socket, for processes that must hold no keys. It is no `Signer`: a sign socket signs claims, and never a digest.
 *
 * @example
 * ```ts
 * const tokens = createSignClient({ socket: "/run/jwksd/sign.sock" });
 * const token = await tokens.sign({ sub: "alice", aud: "my-api" }, { typ: "at+jwt", lifetimeSeconds: 300 });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function createSignClient(options: SignClientOptions): SignClient {
  const { socket, timeoutMs = 10_000, maxConnections = 16 } = checkOptions(options, rules);
  if (socket === undefined) throw new ConfigError("ERR_OPTION_INVALID", 'option "socket" is missing');
  const agent = new Agent({ keepAlive: true, maxSockets: maxConnections });
  const expired = () => new SignerError("ERR_SIGNER_TIMEOUT", `${socket}: no token within ${timeoutMs} ms`);

  async function post(body: string, signal: AbortSignal): Promise<Answer> {
    for (;;) {
      const exchange = send(agent, socket, body, signal);
      try {
        return await exchange.answer;
      } catch (error) {
        // The server had closed this connection while it was idle. A token that is signed twice does no harm.
        if (!exchange.request.reusedSocket || (error as NodeJS.ErrnoException).code !== "ECONNRESET") throw error;
      }
    }
  }

  return {
    async sign(claims, options) {
      const { signal, ...more } = options ?? {};
      const body = bodyOf({ ...more, claims });
      const work = (signal: AbortSignal): Promise<Answer> => post(body, signal);
      const limits = { clock: systemClock, timeoutMs, signal, expired, aborted };
      const answer = await withDeadline(work, limits).catch((error: unknown) => {
        throw error instanceof JwksdError ? error : unreachable(socket, error);
      });
      if (answer.status === 200) return answer.text;
      throw refusal(socket, answer);
    },
    close: () => agent.destroy(),
  };
}

const aborted = (): SignerError => new SignerError("ERR_SIGNER_ABORTED", "the caller aborted the signature");

/** @throws TokenError `ERR_CLAIMS_INVALID` */
function bodyOf(request: object): string {
  try {
    return JSON.stringify(request);
  } catch (cause) {
    throw new TokenError("ERR_CLAIMS_INVALID", "claims and header must be what JSON can hold", { cause });
  }
}

interface Answer {
  readonly status: number | undefined;
  readonly text: string;
}

function send(agent: Agent, socketPath: string, body: string, signal: AbortSignal) {
  const headers = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) };
  const request = httpRequest({ agent, socketPath, path: "/sign", method: "POST", headers, signal });
  const answer = new Promise<Answer>((resolve, reject) => {
    request.once("error", reject);
    request.once("response", (response: IncomingMessage) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
      response.once("error", reject);
      response.once("end", () => resolve({ status: response.statusCode, text }));
    });
  });
  request.end(body);
  return { request, answer };
}

function unreachable(socket: string, cause: unknown): SignerError {
  const { code } = cause as NodeJS.ErrnoException;
  if (code === "EACCES") {
    return new SignerError("ERR_SIGNER_UNAUTHORIZED", `${socket}: this user may not connect`, { cause });
  }
  return new SignerError("ERR_SIGNER_UNAVAILABLE", `${socket}: nobody answers (${code}); try again later`, { cause });
}

/** The error that the server has answered with. */
function refusal(socket: string, { status, text }: Answer): JwksdError {
  const { code = "", detail = "" } = problemIn(text);
  const [, kind] = /^ERR_([A-Z]+)_/.exec(code) ?? [];
  if (kind === "CLAIMS") return new TokenError(code as never, detail);
  if (kind === "OPTION") return new ConfigError(code as never, detail);
  if (kind === "SIGNER") return new SignerError(code as never, detail);
  return new SignerError("ERR_SIGNER_UNAVAILABLE", `${socket} answers ${status} ${code}`);
}

function problemIn(text: string): { readonly code?: string; readonly detail?: string } {
  try {
    return JSON.parse(text) as object;
  } catch {
    return {};
  }
}
