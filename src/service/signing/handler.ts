import type { IncomingMessage, ServerResponse } from "node:http";
import { ConfigError, JwksdError, TokenError, codeOf } from "../../base/errors.ts";
import { escapedUnit } from "../../base/printable.ts";
import { publishedJwk } from "../../keys/jwk/public.ts";
import { writeReply } from "../../publish/node.ts";
import { type Reply, problem } from "../../publish/respond.ts";
import type { Signing } from "./signing.ts";
import type { Audit } from "./audit.ts";
import { maxBodyBytes, readBody } from "./body.ts";
import { type SignPolicy, checkAllowed } from "./policy.ts";
import { readSignRequest } from "./request.ts";

const { STATUS_CODES } = process.getBuiltinModule("node:http");

/** What one socket signs, and for whom. */
export interface SignOf {
  readonly signing: Signing;
  readonly policy: SignPolicy;
  readonly audit: Audit;
}

/**
 * Answers the requests of a sign socket: `POST /sign`, `GET /keys`, `GET /livez` and `GET /readyz`. Nothing here gives a key away, and
 * nothing signs bytes of a caller's choice.
 */
export function signHandler(sign: SignOf) {
  const { signing, audit } = sign;

  async function answerSign(request: IncomingMessage): Promise<Reply> {
    try {
      const token = await audit.sign(request.socket, async () => {
        const isLong = Number(request.headers["content-length"] ?? 0) > maxBodyBytes;
        const body = isLong ? undefined : await readBody(request);
        if (body === undefined)
          throw new TooLong("ERR_CLAIMS_INVALID", `the body is longer than ${maxBodyBytes} bytes`);
        return tokenFor(body, sign);
      });
      return replyOf("application/jwt", token);
    } catch (error) {
      return problemOf(error);
    }
  }

  const reads: Readonly<Record<string, () => Reply>> = {
    "/keys": () => replyOf("application/json", keysText(signing)),
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
    if (read === undefined) return reply(nothing);
    reply(method === "GET" || method === "HEAD" ? read() : notAllowed("GET, HEAD"));
  };
}

class TooLong extends TokenError {}

/** @throws JwksdError for all that is wrong with the request or the signer */
function tokenFor(body: Uint8Array, { policy, signing }: SignOf): Promise<string> {
  const { claims, ...options } = readSignRequest(body);
  checkAllowed(policy, claims, options);
  return signing.sign(claims, options);
}

function keysText({ signingRecords }: Signing): string {
  const keys = signingRecords().map((record) => ({ kid: record.kid, state: record.state, jwk: publishedJwk(record) }));
  return JSON.stringify({ keys }).replace(/[^ -~]/g, escapedUnit);
}

/** Ready is who may sign now. */
function readiness({ checkMaySign }: Signing): Reply {
  try {
    checkMaySign();
    return ok;
  } catch (error) {
    return problemOf(error);
  }
}

/** @param body in ASCII */
function replyOf(contentType: string, body: string): Reply {
  const content = ["Content-Type", contentType, "Content-Length", String(body.length)];
  return { status: 200, headers: [...content, "Cache-Control", "no-store"], body };
}

const ok = replyOf("text/plain; charset=utf-8", "ok\n");

const refusal = (status: number, detail: string, headers: readonly string[] = [], more: object = {}): Reply =>
  problem(status, STATUS_CODES[status] ?? "", detail, headers, more).get;

const nothing = refusal(404, "There is nothing at this path. Tokens come from POST /sign, the keys from GET /keys.");

const notAllowed = (allow: string): Reply => refusal(405, `This path answers ${allow}.`, ["Allow", allow]);

/** The problem of an error, with its `code` and whether it is `retryable`. An unknown error may quote anything, so nothing of it is told. */
function problemOf(error: unknown): Reply {
  if (!(error instanceof JwksdError)) {
    return refusal(500, "an unexpected error occurred", [], { code: codeOf(error), retryable: false });
  }
  const { code, retryable, message } = error;
  // Within a second, a manager that was stale has asked its store again.
  return refusal(statusOf(error), message, retryable ? ["Retry-After", "1"] : [], { code, retryable });
}

/** @see RFC 9110 section 15 */
function statusOf(error: JwksdError): number {
  if (error.retryable) return 503;
  if (error instanceof TooLong) return 413;
  if (error.code === "ERR_CLAIMS_FORBIDDEN") return 403;
  return error instanceof TokenError || error instanceof ConfigError ? 400 : 500;
}
