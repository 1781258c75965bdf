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
  nonEmptyString,
  stringThat,
  timeout,
} from "../../base/options.ts";
import { printable } from "../../base/printable.ts";
import type { Claims, SignOptions } from "../token/sign-options.ts";
import { checkedOptions } from "../token/sign-options.ts";

/** Options for `createSignClient`. */
export interface SignClientOptions {
  /** Path of a `jwksd serve --sign-socket` socket. Required unless `address` is given. */
  readonly socket?: Optional<string>;
  /**
   * HOST:PORT of a `jwksd serve` sign socket. The server's certificate must be valid for the host. Required unless
   * `socket` is given.
   */
  readonly address?: Optional<string>;
  /** This client's certificate, as PEM. Required if `address` is given. */
  readonly cert?: Optional<string>;
  /** The certificate's private key, as PEM. Required if `address` is given. */
  readonly key?: Optional<string>;
  /** Certificate of the CA that issued the server's certificate, as PEM. Required if `address` is given. */
  readonly ca?: Optional<string>;
  /** Time limit for one token, in milliseconds. Default: 10,000. */
  readonly timeoutMs?: Optional<number>;
  /** Maximum number of connections. If all are in use, further calls wait until one is free. Default: 16. */
  readonly maxConnections?: Optional<number>;
}

/** Signs tokens like a provider, but through the sign socket of another process, which has the keys. */
export interface SignClient {
  /**
   * Signs claims with the active key, like `provider.sign`.
   *
   * @throws TokenError `ERR_CLAIMS_INVALID`; `ERR_CLAIMS_FORBIDDEN` if the socket's policy does not allow the claims
   * @throws SignerError the same errors as `provider.sign`; also `ERR_SIGNER_STALE`, `ERR_SIGNER_UNAVAILABLE` if no
   * process is listening, and `ERR_SIGNER_UNAUTHORIZED` if this user is not allowed to connect
   */
  sign(this: void, claims: Claims, options: SignOptions): Promise<string>;
  /** Closes idle connections. */
  close(this: void): void;
}

const rules: Rules<SignClientOptions> = {
  socket: nonEmptyString,
  address: stringThat("HOST:PORT", (value) => /^[^/@]+:\d+$/.test(value) && URL.canParse(`https://${value}`)),
  cert: nonEmptyString,
  key: nonEmptyString,
  ca: nonEmptyString,
  timeoutMs: timeout,
  maxConnections: number(1),
};

/**
 * Creates a client for a sign socket, for use in processes that must not have keys. The client is not a `Signer`,
 * because a sign socket signs only claims, never digests.
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
  const { timeoutMs = 10_000, maxConnections = 16, ...place } = checkOptions(options, rules);
  const server = serverAt(place, { keepAlive: true, maxSockets: maxConnections });
  const { name } = server;
  const expired = () => new SignerError("ERR_SIGNER_TIMEOUT", `${name}: no token within ${timeoutMs} ms`);

  async function post(body: string, signal: AbortSignal): Promise<Reply> {
    for (;;) {
      const exchange = send(server, body, signal);
      try {
        return await exchange.reply;
      } catch (error) {
        // The server had already closed this idle connection. Retrying is safe, because signing a token twice does no
        // harm.
        const { code = "" } = error as NodeJS.ErrnoException;
        if (!exchange.request.reusedSocket || !["ECONNRESET", "EPIPE"].includes(code)) throw error;
      }
    }
  }

  return {
    async sign(claims, options) {
      // A Map, an Error or a Promise becomes an empty object in JSON, which the socket would sign.
      const { signal } = checkedOptions(claims, options);
      const { signal: _, ...more } = options ?? {};
      const body = bodyOf({ ...more, claims });
      const work = (signal: AbortSignal): Promise<Reply> => post(body, signal);
      const limits = { clock: systemClock, timeoutMs, signal, expired, aborted };
      const reply = await withDeadline(work, limits).catch((error: unknown) => {
        throw error instanceof JwksdError ? error : unreachable(name, error);
      });
      if (reply.status === 200) return reply.text;
      throw refusal(name, reply);
    },
    close: () => server.agent.destroy(),
  };
}

/** The server that requests are sent to. */
interface SignServer {
  /** The server's name in messages. */
  readonly name: string;
  readonly agent: Agent;
  readonly request: typeof http.request;
  readonly target: ClientRequestArgs;
}

function serverAt({ socket, address, cert, key, ca }: Given<SignClientOptions>, limits: http.AgentOptions): SignServer {
  if ((socket === undefined) === (address === undefined)) {
    throw invalidOption('set either the "socket" or the "address" option, not both');
  }
  if (address === undefined) {
    const target = { socketPath: socket };
    return { name: socket ?? "", agent: new http.Agent(limits), request: http.request, target };
  }
  if (cert === undefined || key === undefined || ca === undefined) {
    throw invalidOption('the "address" option requires "cert", "key" and "ca"');
  }
  const { hostname, port } = new URL(`https://${address}`);
  const target = { host: hostname.replace(/^\[(.*)\]$/, "$1"), port: port || 443 };
  const agent = new https.Agent({ ...limits, cert, key, ca, minVersion: "TLSv1.3" });
  return { name: address, agent, request: https.request, target };
}

const aborted = (): SignerError => new SignerError("ERR_SIGNER_ABORTED", "the caller aborted the signing operation");

/** Serializes a request. @throws TokenError `ERR_CLAIMS_INVALID` */
function bodyOf(request: object): string {
  try {
    return JSON.stringify(request);
  } catch (cause) {
    throw invalidClaims("claims and header must be serializable as JSON", { cause });
  }
}

const tooLarge = (socket: string): SignerError =>
  new SignerError("ERR_SIGNER_UNAVAILABLE", `${socket}: the response is too large`);

/** Maximum length of a response. No token can be longer, because a request is at most 64 KiB. */
const maxReplyLength = 262_144;

interface Reply {
  readonly status: number | undefined;
  readonly text: string;
}

function send({ name, agent, request: start, target }: SignServer, body: string, signal: AbortSignal) {
  const headers = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) };
  const request = start({ ...target, agent, path: "/sign", method: "POST", headers, signal });
  const reply = new Promise<Reply>((resolve, reject) => {
    request.once("error", reject);
    request.once("response", (response: IncomingMessage) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
        if (text.length > maxReplyLength) response.destroy(tooLarge(name));
      });
      response.once("error", reject);
      response.once("end", () => resolve({ status: response.statusCode, text }));
    });
  });
  request.end(body);
  return { request, reply };
}

function unreachable(socket: string, cause: unknown): SignerError {
  const { code } = cause as NodeJS.ErrnoException;
  if (code === "EACCES") {
    return new SignerError("ERR_SIGNER_UNAUTHORIZED", `${socket}: this user is not allowed to connect`, { cause });
  }
  if (/^ERR_(?:SSL|TLS)_|CERT/.test(code ?? "")) {
    return new SignerError("ERR_SIGNER_UNAUTHORIZED", `${socket}: a certificate was not accepted (${code})`, {
      cause,
    });
  }
  return new SignerError("ERR_SIGNER_UNAVAILABLE", `${socket}: no process is responding (${code}); retry later`, {
    cause,
  });
}

/** Returns the error in the server's response. */
function refusal(socket: string, { status, text }: Reply): JwksdError {
  const problem = Object(jsonOf(text)) as { readonly code?: string; readonly detail?: string };
  const [code, detail] = [printable(problem.code ?? ""), printable(problem.detail ?? "")];
  const [, kind] = /^ERR_([A-Z]+)_/.exec(code) ?? [];
  if (kind === "CLAIMS") return new TokenError(code as never, detail);
  if (kind === "OPTION") return new ConfigError(code as never, detail);
  if (kind === "SIGNER") return new SignerError(code as never, detail);
  return new SignerError("ERR_SIGNER_UNAVAILABLE", `${socket} responded with status ${status} ${code}`);
}
