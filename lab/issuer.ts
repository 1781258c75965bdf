import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { Certificate } from "../test/client/certificate.ts";
import { ecKey, withoutPrivate } from "../test/support/keys.ts";
import { listening } from "../test/support/listening.ts";

/** Response for the JWK Set, until a history changes it. */
export interface Answer {
  /** Kids in the set. */
  readonly keys: readonly string[];
  /** Kids in the set of a second server, which responds to every other request. */
  readonly otherKeys?: readonly string[];
  readonly maxAge?: number;
  /** `Age` from a cache, in seconds. */
  readonly age?: number;
  /** Validator that does not change with the body. */
  readonly etag?: string;
  /** Status other than 200, without a set. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly redirects?: true;
  readonly hangs?: true;
}

/** One request for the set, with the history's time in seconds. */
export interface Received {
  readonly at: number;
  /** Whether it has `If-None-Match`. */
  readonly conditional: boolean;
}

/** The public key for a kid; the private key is `ecKey(kid)`. */
const published = (kid: string): object => ({ ...withoutPrivate(ecKey(kid)), kid, alg: "ES256", use: "sig" });

/** Returns the response to a request. @param count number of earlier requests for the set */
export function reply(answer: Answer, ifNoneMatch: string | undefined, count: number) {
  const { maxAge = 3_600, age, status = 200 } = answer;
  const keys = count % 2 === 1 ? (answer.otherKeys ?? answer.keys) : answer.keys;
  if (answer.redirects) return { status: 302, headers: { location: "/moved" }, body: "" };
  if (status !== 200) return { status, headers: { ...answer.headers }, body: "" };
  const etag = answer.etag ?? `"${keys.join(".")}"`;
  const headers = {
    "content-type": "application/jwk-set+json",
    "cache-control": `public, max-age=${maxAge}`,
    etag,
    ...(age !== undefined && { age: String(age) }),
  };
  if (ifNoneMatch === etag) return { status: 304, headers, body: "" };
  return { status: 200, headers, body: JSON.stringify({ keys: keys.map(published) }) };
}

/** An issuer on loopback that responds as `answer` specifies, at the time `now`. */
export class Issuer {
  answer: Answer = { keys: [] };
  /** Time, in epoch milliseconds. */
  now = 0;
  received: Received[] = [];
  /** Requests for the discovery document. */
  discoveries = 0;
  #start = 0;
  #origin = "";

  /** Starts an issuer. @param t stops it */
  static async listen(t: { after(end: () => void): void }, certificate: Certificate): Promise<Issuer> {
    const issuer = new Issuer();
    const server = createServer({ ...certificate, keepAliveTimeout: 600_000 }, (request, response) =>
      issuer.#respond(request, response),
    );
    issuer.#origin = `https://localhost:${await listening(t, server)}`;
    return issuer;
  }

  /** Begins a history. */
  begin(start: number): void {
    this.#start = this.now = start;
    this.received = [];
    this.discoveries = 0;
  }

  get configured() {
    return { issuer: this.#origin, iss: this.#origin, jwksUri: `${this.#origin}/jwks` };
  }

  #respond(request: IncomingMessage, response: ServerResponse): void {
    // A verifier may compare Date with its clock, which has the history's time.
    const date = new Date(this.now).toUTCString();
    const { "if-none-match": ifNoneMatch } = request.headers;
    if (request.url === "/.well-known/openid-configuration") {
      this.discoveries++;
      response.writeHead(200, { "content-type": "application/json", date }).end(JSON.stringify(this.#metadata));
      return;
    }
    const isMoved = request.url === "/moved";
    const answer: Answer = isMoved ? { keys: this.answer.keys } : this.answer;
    const { status, headers, body } = reply(answer, ifNoneMatch, this.received.length);
    if (!isMoved) {
      this.received.push({ at: (this.now - this.#start) / 1_000, conditional: ifNoneMatch !== undefined });
    }
    if (!answer.hangs) response.writeHead(status, { ...headers, date }).end(body);
  }

  get #metadata(): object {
    return {
      issuer: this.#origin,
      jwks_uri: `${this.#origin}/jwks`,
      authorization_endpoint: `${this.#origin}/authorize`,
      token_endpoint: `${this.#origin}/token`,
      response_types_supported: ["id_token"],
      subject_types_supported: ["public"],
      id_token_signing_alg_values_supported: ["ES256"],
    };
  }
}
