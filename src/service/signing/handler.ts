import type { IncomingMessage, ServerResponse } from "node:http";
import { ConfigError, JwksdError, TokenError, codeOf } from "../../base/errors.ts";
import { escapedUnit } from "../../base/printable.ts";
import { publishedJwk } from "../../keys/jwk/public-members.ts";
import { writeReply } from "../../publish/node-response.ts";
import { type Reply, problem } from "../../publish/respond.ts";
import type { TokenSigner } from "../../sign/token/token-signer.ts";
import type { ServiceKeys } from "../keys/store-keys.ts";
import { type SignPolicy, checkAllowed } from "./policy.ts";
import { maxBodyBytes, readBody } from "./read-body.ts";
import { readSignRequest } from "./sign-request.ts";
import type { Audit } from "./signature-counts.ts";

const { STATUS_CODES } = process.getBuiltinModule("node:http");

/** Provider for the sign sockets, and its source of keys. */
export interface Signing
  extends Pick<TokenSigner, "sign" | "signPayload" | "checkMaySign">, Pick<ServiceKeys, "signingRecords"> {
  readonly source: Pick<ServiceKeys["source"], "takenAt" | "maxTokenLifetimeSeconds">;
}

/** The parts involved in signing for one socket. */
export interface SocketSigning {
  readonly signing: Signing;
  readonly policy: SignPolicy;
  readonly audit: Audit;
}

/**
 * Creates the handler for a sign socket: `POST /sign`, `GET /keys`, `GET /livez` and `GET /readyz`. No request can
 * return a private key or sign bytes of the caller's choice.
 */
export function signHandler(sign: SocketSigning) {
  const { signing, audit } = sign;

  async function answerSign(request: IncomingMessage): Promise<Reply> {
    try {
      const token = await audit.sign(request.socket, async () => {
        const isLong = Number(request.headers["content-length"] ?? 0) > maxBodyBytes;
        const body = isLong ? undefined : await readBody(request);
        if (body === undefined)
          throw new BodyTooLong("ERR_CLAIMS_INVALID", `the body is longer than ${maxBodyBytes} bytes`);
        return tokenFor(body, sign);
      });
      return replyOf("application/jwt", token);
    } catch (error) {
      return problemOf(error);
    }
  }

  const reads: Readonly<Record<string, () => Reply>> = {
    "/keys": () => replyOf("application/json", keysJson(signing)),
    "/livez": () => ok,
    "/readyz": () => readiness(signing),
  };

  return (request: IncomingMessage, response: ServerResponse): void => {
    const { method, url = "" } = request;
    const [path = ""] = url.split("?", 1);
    const reply = (answer: Reply): void => writeReply(response, answer);
    if (path === "/sign") {
      if (method !== "POST") return reply(notAllowed("POST"));
      answerSign(request).then(reply, () => request.socket.destroy());
      return;
    }
    const read = Object.hasOwn(reads, path) ? reads[path] : undefined;
    if (read === undefined) return reply(notFound);
    reply(method === "GET" || method === "HEAD" ? read() : notAllowed("GET, HEAD"));
  };
}

class BodyTooLong extends TokenError {}

/** Signs the token that a request body describes. @throws JwksdError if the request is invalid or the signer fails */
function tokenFor(body: Uint8Array, { policy, signing }: SocketSigning): Promise<string> {
  const { claims, ...options } = readSignRequest(body);
  checkAllowed(policy, claims, options);
  return signing.sign(claims, options);
}

function keysJson({ signingRecords }: Signing): string {
  const keys = signingRecords().map((record) => ({ kid: record.kid, state: record.state, jwk: publishedJwk(record) }));
  return JSON.stringify({ keys }).replace(/[^ -~]/g, escapedUnit);
}

/** Reports readiness: the process is ready if it may sign. */
function readiness({ checkMaySign }: Signing): Reply {
  try {
    checkMaySign();
    return ok;
  } catch (error) {
    return problemOf(error);
  }
}

/** @param body an ASCII string */
function replyOf(contentType: string, body: string): Reply {
  const content = ["Content-Type", contentType, "Content-Length", String(body.length)];
  return { status: 200, headers: [...content, "Cache-Control", "no-store"], body };
}

const ok = replyOf("text/plain; charset=utf-8", "ok\n");

const refusal = (status: number, detail: string, headers: readonly string[] = [], more: object = {}): Reply =>
  problem(status, STATUS_CODES[status] ?? "", detail, headers, more).get;

const notFound = refusal(
  404,
  "There is nothing at this path. To get a token, use POST /sign; to get the keys, use GET /keys.",
);

const notAllowed = (allow: string): Reply => refusal(405, `This path accepts only ${allow}.`, ["Allow", allow]);

/**
 * Returns the problem document for an error, with `code` and `retryable`. Omits the message of an unknown error,
 * because it might quote secrets.
 */
function problemOf(error: unknown): Reply {
  if (!(error instanceof JwksdError)) {
    return refusal(500, "an unexpected error occurred", [], { code: codeOf(error), retryable: false });
  }
  const { code, retryable, message } = error;
  // A stale manager reads its store again within a second, so it is worth retrying.
  return refusal(statusOf(error), message, retryable ? ["Retry-After", "1"] : [], { code, retryable });
}

/** @see RFC 9110 section 15 */
function statusOf(error: JwksdError): number {
  if (error.retryable) return 503;
  if (error instanceof BodyTooLong) return 413;
  if (error.code === "ERR_CLAIMS_FORBIDDEN") return 403;
  if (error.code === "ERR_SIGNER_DECOMMISSIONED") return 410;
  return error instanceof TokenError || error instanceof ConfigError ? 400 : 500;
}
