import type { IncomingMessage, ServerResponse } from "node:http";
import { publishedJwk } from "../../keys/jwk/public.ts";
import type { Audit } from "./audit.ts";
import { readBody } from "./body.ts";
import { limitSignatures } from "./signature-limits.ts";
import { type SignPolicy, checkAllowed } from "./policy.ts";
import { type SignReply, problem, problemOf } from "./replies.ts";
import { readSignRequest } from "./request.ts";
import type { Signing } from "../keys/signing.ts";

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
  const limited = limitSignatures(sign.audit);

  async function answerSign(request: IncomingMessage): Promise<SignReply> {
    try {
      const text = await limited(request.socket, async () => tokenFor(await readBody(request), sign));
      return { status: 200, contentType: "application/jwt", text };
    } catch (error) {
      return problemOf(error);
    }
  }

  const reads: Readonly<Record<string, () => SignReply>> = {
    "/keys": () => ({
      status: 200,
      contentType: "application/json",
      text: JSON.stringify({ keys: publishedKeys(sign.signing) }),
    }),
    "/livez": () => ok,
    "/readyz": () => readiness(sign.signing),
  };

  return (request: IncomingMessage, response: ServerResponse): void => {
    const { method, url = "" } = request;
    const [path = ""] = url.split("?", 1);
    const reply = (answer: SignReply): void => write(response, answer);
    if (path === "/sign") {
      if (method !== "POST") return reply(notAllowed("POST"));
      answerSign(request).then(reply, () => request.socket.destroy());
      return;
    }
    const read = Object.hasOwn(reads, path) ? reads[path] : undefined;
    if (read === undefined)
      return reply(
        problem(404, "There is nothing at this path. Tokens come from POST /sign, the keys from GET /keys."),
      );
    reply(method === "GET" || method === "HEAD" ? read() : notAllowed("GET, HEAD"));
  };
}

/** @throws JwksdError for all that is wrong with the request or the signer */
function tokenFor(body: Uint8Array, { policy, signing }: SignOf): Promise<string> {
  const { claims, ...options } = readSignRequest(body);
  checkAllowed(policy, claims, options);
  return signing.sign(claims, options);
}

const publishedKeys = ({ published }: Signing): readonly object[] =>
  published().map((record) => ({ kid: record.kid, state: record.state, jwk: publishedJwk(record) }));

const ok: SignReply = { status: 200, contentType: "text/plain; charset=utf-8", text: "ok\n" };

/** Ready is who may sign now. */
function readiness({ checkMaySign }: Signing): SignReply {
  try {
    checkMaySign();
    return ok;
  } catch (error) {
    return problemOf(error);
  }
}

const notAllowed = (allow: string): SignReply => problem(405, `This path answers ${allow}.`, {}, ["Allow", allow]);

function write(response: ServerResponse, { status, contentType, text, headers = [] }: SignReply): void {
  // The server has answered already where the body did not come.
  if (response.headersSent) return;
  const length = Buffer.byteLength(text);
  response.writeHead(status, [
    "Content-Type",
    contentType,
    "Content-Length",
    String(length),
    "Cache-Control",
    "no-store",
    ...headers,
  ]);
  // Node writes Latin-1 faster.
  response.end(text, length === text.length ? "latin1" : "utf8");
}
