import http, { type Agent, type ClientRequestArgs, type IncomingMessage } from "node:http";
import https from "node:https";
import { withDeadline } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { ConfigError, JwksdError, SignerError, TokenError, invalidClaims, invalidOption } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import {
  type Optional,
  type Given,
  type Rules,
  checkOptions,
  number,
  text,
  textThat,
  timeout,
} from "../../base/options.ts";
import { printable } from "../../base/printable.ts";
import type { Claims, SignOptions } from "../token/sign-options.ts";
import { checkedOptions } from "../token/sign-options.ts";

/** Options of `createSignClient`. */
export interface SignClientOptions {
  /** Path of a socket of `jwksd serve --sign-socket`. Required, unless `address` is given. */
  readonly socket?: Optional<string>;
  /** HOST:PORT of the sign sockets of `jwksd serve`. The host is one of those that its certificate names. Required, unless `socket` is given. */
  readonly address?: Optional<string>;
  /** Certificate of this client, as PEM. Required, if `address` is given. */
  readonly cert?: Optional<string>;
  /** Private key of this certificate, as PEM. Required, if `address` is given. */
  readonly key?: Optional<string>;
  /** Authority of the server's certificate, as PEM. Required, if `address` is given. */
  readonly ca?: Optional<string>;
  /** Time for one token, in milliseconds. Default: 10,000. */
  readonly timeoutMs?: Optional<number>;
  /** Connections at once; other calls wait for one. Default: 16. */
  readonly maxConnections?: Optional<number>;
}

/** Signs tokens as a provider does, through the sign socket of another process that has the keys. */
export interface SignClient {
  /**
   * Signs claims with the active key, as `provider.sign` does.
   *
   * @throws TokenError `ERR_CLAIMS_INVALID`; `ERR_CLAIMS_FORBIDDEN` by the policy of the socket
   * @throws SignerError those of `provider.sign`; `ERR_SIGNER_STALE`; `ERR_SIGNER_UNAVAILABLE` where nobody listens,
   * `ERR_SIGNER_UNAUTHORIZED` where this user may not connect
   */
  sign(this: void, claims: Claims, options: SignOptions): Promise<string>;
  /** Closes the connections that are idle. */
  close(this: void): void;
}

const rules: Rules<SignClientOptions> = {
  socket: text,
  address: textThat("HOST:PORT", (value) => /^[^/@]+:\d+$/.test(value) && URL.canParse(`https://${value}`)),
  cert: text,
  key: text,
  ca: text,
  timeoutMs: timeout,
  maxConnections: number(1),
};

/**
 * A client of a sign socket, for processes that must hold no keys. It is no `Signer`: a sign socket signs claims, and never a digest.
 *
 * @example
 * ```ts
 * const tokens = createSignClient({ socket: "/run/jwksd/sign.sock" });
 * const token = await tokens.sign({ sub: "alice", aud: "my-api", client_id: "app" }, { typ: "at+jwt", lifetimeSeconds: 300 });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function createSignClient(options: SignClientOptions): SignClient {
  const { timeoutMs = 10_000, maxConnections = 16, ...where } = checkOptions(options, rules);
  const server = serverAt(where, { keepAlive: true, maxSockets: maxConnections });
  const { name } = server;
  const expired = () => new SignerError("ERR_SIGNER_TIMEOUT", `${name}: no token within ${timeoutMs} ms`);

  async function post(body: string, signal: AbortSignal): Promise<Reply> {
    for (;;) {
      const exchange = send(server, body, signal);
      try {
        return await exchange.answer;
      } catch (error) {
        // The server had closed this connection while it was idle. A token that is signed twice does no harm.
        const { code = "" } = error as NodeJS.ErrnoException;
        if (!exchange.request.reusedSocket || !["ECONNRESET", "EPIPE"].includes(code)) throw error;
      }
    }
  }

  return {
    async sign(claims, options) {
      // The JSON of a Map, an Error or a Promise is an empty object, and a socket would sign that.
      const { signal } = checkedOptions(claims, options);
      const { signal: _, ...more } = options ?? {};
      const body = bodyOf({ ...more, claims });
      const work = (signal: AbortSignal): Promise<Reply> => post(body, signal);
      const limits = { clock: systemClock, timeoutMs, signal, expired, aborted };
      const answer = await withDeadline(work, limits).catch((error: unknown) => {
        throw error instanceof JwksdError ? error : unreachable(name, error);
      });
      if (answer.status === 200) return answer.text;
      throw refusal(name, answer);
    },
    close: () => server.agent.destroy(),
  };
}

/** Where requests go. */
interface SignServer {
  /** For messages. */
  readonly name: string;
  readonly agent: Agent;
  readonly request: typeof http.request;
  readonly target: ClientRequestArgs;
}

function serverAt({ socket, address, cert, key, ca }: Given<SignClientOptions>, limits: http.AgentOptions): SignServer {
  if ((socket === undefined) === (address === undefined)) {
    throw invalidOption('one of the options "socket" and "address" is needed');
  }
  if (address === undefined) {
    const target = { socketPath: socket };
    return { name: socket ?? "", agent: new http.Agent(limits), request: http.request, target };
  }
  if (cert === undefined || key === undefined || ca === undefined) {
    throw invalidOption('the option "address" needs "cert", "key" and "ca"');
  }
  const { hostname, port } = new URL(`https://${address}`);
  const target = { host: hostname.replace(/^\[(.*)\]$/, "$1"), port: port || 443 };
  const agent = new https.Agent({ ...limits, cert, key, ca, minVersion: "TLSv1.3" });
  return { name: address, agent, request: https.request, target };
}

const aborted = (): SignerError => new SignerError("ERR_SIGNER_ABORTED", "the caller aborted the signature");

/** @throws TokenError `ERR_CLAIMS_INVALID` */
function bodyOf(request: object): string {
  try {
    return JSON.stringify(request);
  } catch (cause) {
    throw invalidClaims("claims and header must be what JSON can hold", { cause });
  }
}

const tooLarge = (socket: string): SignerError =>
  new SignerError("ERR_SIGNER_UNAVAILABLE", `${socket}: the response is too large`);

/** A request has 64 KiB at most, so no token is longer. */
const maxReply = 262_144;

interface Reply {
  readonly status: number | undefined;
  readonly text: string;
}

function send({ name, agent, request: start, target }: SignServer, body: string, signal: AbortSignal) {
  const headers = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) };
  const request = start({ ...target, agent, path: "/sign", method: "POST", headers, signal });
  const answer = new Promise<Reply>((resolve, reject) => {
    request.once("error", reject);
    request.once("response", (response: IncomingMessage) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
        if (text.length > maxReply) response.destroy(tooLarge(name));
      });
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
  if (/^ERR_(?:SSL|TLS)_|CERT/.test(code ?? "")) {
    return new SignerError("ERR_SIGNER_UNAUTHORIZED", `${socket}: the certificates do not fit (${code})`, { cause });
  }
  return new SignerError("ERR_SIGNER_UNAVAILABLE", `${socket}: nobody answers (${code}); try again later`, { cause });
}

/** The error that the server has answered with. */
function refusal(socket: string, { status, text }: Reply): JwksdError {
  const problem = Object(jsonOf(text)) as { readonly code?: string; readonly detail?: string };
  const [code, detail] = [printable(problem.code ?? ""), printable(problem.detail ?? "")];
  const [, kind] = /^ERR_([A-Z]+)_/.exec(code) ?? [];
  if (kind === "CLAIMS") return new TokenError(code as never, detail);
  if (kind === "OPTION") return new ConfigError(code as never, detail);
  if (kind === "SIGNER") return new SignerError(code as never, detail);
  return new SignerError("ERR_SIGNER_UNAVAILABLE", `${socket} answers ${status} ${code}`);
}
