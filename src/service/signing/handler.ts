import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock } from "../../base/clock.ts";
import { signToken } from "../../library/token/sign.ts";
import type { Audit } from "./audit.ts";
import { readBody } from "./body.ts";
import { createPlaces } from "./places.ts";
import { type SignPolicy, checkAllowed } from "./policy.ts";
import { type SignReply, problem, problemOf } from "./replies.ts";
import { readSignRequest } from "./request.ts";
import type { SigningKeys } from "./signing-keys.ts";

/** What one socket signs, and for whom. */
export interface SignOf {
  readonly issuer: string;
  readonly keys: SigningKeys;
  readonly policy: SignPolicy;
  readonly audit: Audit;
  readonly clock: Clock;
}

/**
 * Answers the requests of a sign socket: `POST /sign`, `GET /keys`, `GET /livez` and `GET /readyz`. Nothing here gives a key away, and
 * nothing signs bytes of a caller's choice. A body that is here already is the third argument.
 */
export function signHandler(sign: SignOf) {
  const inPlace = createPlaces(sign.audit);

  async function answerSign(request: IncomingMessage, body?: Uint8Array): Promise<SignReply> {
    try {
      const text = await inPlace(request.socket, async () => tokenFor(await readBody(request, body), sign));
      return { status: 200, contentType: "application/jwt", text };
    } catch (error) {
      return problemOf(error);
    }
  }

  const reads: Readonly<Record<string, () => SignReply>> = {
    "/keys": () => ({
      status: 200,
      contentType: "application/json",
      text: JSON.stringify({ keys: keysOf(sign.keys) }),
    }),
    "/livez": () => ok,
    "/readyz": () => readiness(sign.keys),
  };

  return (request: IncomingMessage, response: Response, body?: Uint8Array): void => {
    const { method, url = "" } = request;
    const [path = ""] = url.split("?", 1);
    const reply = (answer: SignReply): void => write(response, answer);
    if (path === "/sign") {
      if (method !== "POST") return reply(notAllowed("POST"));
      answerSign(request, body).then(reply, () => request.socket.destroy());
      return;
    }
    const read = Object.hasOwn(reads, path) ? reads[path] : undefined;
    if (read === undefined) return reply(problem(404, "There is nothing at this path."));
    reply(method === "GET" || method === "HEAD" ? read() : notAllowed("GET, HEAD"));
  };
}

/** @throws JwksdError for all that is wrong with the request or the signer */
function tokenFor(body: Uint8Array, { policy, issuer, keys, clock }: SignOf): Promise<string> {
  const { claims, ...options } = readSignRequest(body);
  checkAllowed(policy, claims, options);
  // The active key is captured here, after all that takes time, so that kid and signature are of one key that may sign now.
  return signToken(keys.active(), issuer, claims, options, clock.now());
}

const keysOf = ({ published }: SigningKeys): readonly object[] =>
  published().map(({ kid, state, publicJwk }) => ({
    kid,
    state,
    jwk: { ...publicJwk, kid, alg: "ES256", use: "sig" },
  }));

const ok: SignReply = { status: 200, contentType: "text/plain; charset=utf-8", text: "ok\n" };

/** Ready is who may sign now. */
function readiness({ active }: SigningKeys): SignReply {
  try {
    active();
    return ok;
  } catch (error) {
    return problemOf(error);
  }
}

const notAllowed = (allow: string): SignReply => problem(405, `This path answers ${allow}.`, {}, ["Allow", allow]);

/** The part of `http.ServerResponse` that is used here. */
type Response = Pick<ServerResponse, "headersSent" | "writeHead" | "end">;

function write(response: Response, { status, contentType, text, headers = [] }: SignReply): void {
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
