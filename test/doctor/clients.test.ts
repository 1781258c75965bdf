import assert from "node:assert/strict";
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { after, before, describe, test } from "node:test";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { type Break, breaks } from "../../src/doctor/breaks.ts";
import { type Code, codes } from "../../src/doctor/index.ts";
import { certificateFor } from "../client/certificate.ts";
import { ecKey, rsaKey } from "../support/keys.ts";
import { compact, signature } from "../token/compact.ts";
import { type Client, type Configured, audience, clients, nonce } from "./clients.ts";
import { type Fixture, fixtures } from "./fixtures.ts";
import { bytes, observed, published, sound } from "./observed.ts";
import { listening } from "./server.ts";

/** What cannot be tried: it needs a network, a time, or several looks. Nobody is named there without an issue. */
function isTried({ code, about }: Fixture): boolean {
  if (code.startsWith("WATCH_") || code.startsWith("HTTP_SLOW")) return false;
  if (
    ["HTTP_TIMEOUT", "HTTP_ADDRESSES_DIFFER", "DISCOVERY_JWKS_URI_PRIVATE", "DISCOVERY_JWKS_URI_SITE"].includes(code)
  ) {
    return false;
  }
  return !["watched", "in time", "unreachable", "not HTTP", "without end", "loop"].includes(about ?? "");
}

type Failing = Break["fails"] | undefined;

/** All fixtures under paths of one server, which each client trusts as it trusts any other. */
describe(
  "verifiers are named if and only if they fail at every fixture of the code",
  { concurrency: 4, timeout: 120_000 },
  () => {
    const trusted = getCACertificates("default");
    const certificate = certificateFor("localhost");
    const untrusted = certificateFor("localhost");
    const tried = fixtures.filter(isTried);
    const cleanUp: (() => void)[] = [];
    const scope = { after: (fn: () => void) => void cleanUp.push(fn) };
    let origins = { https: "", http: "", untrusted: "" };

    before(async () => {
      setDefaultCACertificates([...trusted, certificate.cert]);
      const listener = serveAll(tried, () => origins.http);
      const [https, http, other] = await Promise.all([
        listening(scope, createTlsServer(certificate, listener)),
        listening(scope, createServer(listener)),
        listening(scope, createTlsServer(untrusted, listener)),
      ]);
      origins = {
        https: `https://localhost:${https}`,
        http: `http://localhost:${http}`,
        untrusted: `https://localhost:${other}`,
      };
    });
    after(() => {
      setDefaultCACertificates(trusted);
      for (const end of cleanUp) end();
    });

    for (const client of clients) {
      test(`${client.name} accepts tokens of a good provider`, async () => {
        const rsa = { key: rsaKey(), alg: "RS256", kid: "rsa" };
        const good: Fixture = {
          code: "HTTP_PLAIN",
          observations: observed({ keys: [sound, published("rsa", rsaKey(), "RS256")] }),
          signs: rsa,
        };
        const port = await listening(scope, createTlsServer(certificate, serveAll([good])));
        assert.equal(await failing(client, good, `https://localhost:${port}/0`), undefined);
      });
    }

    for (const code of Object.keys(codes) as Code[]) {
      const own = tried.filter((fixture) => fixture.code === code);
      if (own.length === 0) continue;
      test(code, async () => {
        const found: Break[] = [];
        for (const client of clients) {
          const results: Failing[] = [];
          for (const fixture of own) {
            const origin =
              code === "HTTP_PLAIN" ? origins.http : code === "TLS_INVALID" ? origins.untrusted : origins.https;
            results.push(await failing(client, fixture, `${origin}/${tried.indexOf(fixture)}`));
          }
          const fails = results.includes(undefined)
            ? undefined
            : results.includes("its tokens")
              ? "its tokens"
              : "every token";
          if (fails !== undefined) found.push({ client: client.name, version: client.version, fails });
        }
        const named = (breaks[code] ?? []).filter(({ issue }) => issue === undefined);
        assert.deepEqual(named, found);
      });
    }

    test("none of the matrix is named where it was not tried", () => {
      const untried = (Object.keys(codes) as Code[]).filter((code) => !tried.some((fixture) => fixture.code === code));
      const named = untried.flatMap((code) => (breaks[code] ?? []).filter(({ issue }) => issue === undefined));
      assert.deepEqual(named, []);
    });

    test("who is named by an issue is not of the matrix, and the issue is public", () => {
      for (const { client, issue } of Object.values(breaks).flat()) {
        if (issue === undefined) continue;
        assert.match(issue, /^https:\/\/github\.com\/[\w.-]+\/[\w.-]+\/(issues|pull)\/\d+$/);
        assert.ok(!clients.some(({ name }) => name === client), client);
      }
    });
  },
);

/** Which tokens a client refuses. */
async function failing(client: Client, fixture: Fixture, issuer: string): Promise<Failing> {
  const metadata = fixture.metadata?.(issuer, issuer) ?? {};
  const said = "issuer" in metadata && typeof metadata["issuer"] === "string" ? metadata["issuer"] : issuer;
  const configured: Configured = { issuer, jwksUri: `${issuer}/jwks`, iss: said };
  // What stands in discovery concerns those who read it.
  if (fixture.code.startsWith("DISCOVERY_") && !client.discovers) return undefined;
  const claims = { iss: said, aud: audience, sub: "subject", nonce, iat: seconds(), exp: seconds() + 600 };
  const refuses = async (header: object, key: object, alg: string): Promise<boolean> => {
    const token = compact({ alg, typ: "JWT", ...header }, claims, signature(alg, key));
    return client.verify(token, configured).then(
      () => false,
      () => true,
    );
  };
  if (await refuses({ kid: soundKid(fixture) }, ecKey(soundKid(fixture)), "ES256")) return "every token";
  const { signs } = fixture;
  if (signs === undefined) return undefined;
  const kid = "kid" in signs ? signs.kid : "odd";
  return (await refuses(kid === undefined ? {} : { kid }, signs.key, signs.alg)) ? "its tokens" : undefined;
}

const seconds = (): number => Math.floor(Date.now() / 1000);

/** The kid of a key that nothing is wrong with, as tests make them: from the kid. */
function soundKid({ observations: { set } }: Fixture): string {
  try {
    const { keys } = JSON.parse(Buffer.from(set?.body ?? []).toString()) as { keys: { kid?: unknown; x?: unknown }[] };
    const kids = keys.flatMap(({ kid, x }) => (typeof kid === "string" && ecKey(kid).x === x ? [kid] : []));
    return kids.includes("sound") ? "sound" : (kids[0] ?? "sound");
  } catch {
    return "sound";
  }
}

/** Serves each fixture under its number. */
function serveAll(served: readonly Fixture[], plainOrigin = () => ""): RequestListener {
  return (request, response) => {
    const [, index = "", path = ""] = /^\/(\d+)(\/.*)$/.exec(request.url ?? "") ?? [];
    const fixture = served[Number(index)];
    const scheme = "encrypted" in request.socket ? "https" : "http";
    const issuer = `${scheme}://${request.headers.host}/${index}`;
    if (fixture === undefined) response.writeHead(404).end();
    else if (path === "/jwks" || path === "/moved") answerSet(fixture, path, request, response);
    else answerDiscovery(fixture, issuer, `${plainOrigin()}/${index}`, response);
  };
}

function answerSet(fixture: Fixture, path: string, request: IncomingMessage, response: ServerResponse): void {
  const { set } = fixture.observations;
  const answer = { ...set, ...fixture.answers?.(request.headers as Record<string, string>) };
  if (answer.status === 302 && path === "/jwks") {
    response.writeHead(302, { location: "moved" }).end();
    return;
  }
  const isTurnedAway = answer.status === 406 || answer.status === 403;
  const status = answer.status === 302 || (fixture.answers && !isTurnedAway) ? 200 : (answer.status ?? 200);
  const framing = new Set(["content-length", "transfer-encoding", "content-encoding"]);
  const headers = (set?.headers ?? []).filter(([name]) => !framing.has(name)).flat();
  const body = set?.status === 200 ? set.body : bytes({ keys: [sound] });
  response.writeHead(status, isTurnedAway ? [] : headers).end(isTurnedAway ? "no" : (body ?? bytes({ keys: [sound] })));
}

function answerDiscovery(
  { code, observations, metadata }: Fixture,
  issuer: string,
  plain: string,
  response: ServerResponse,
): void {
  const { discovery } = observations;
  const isAbout = code.startsWith("DISCOVERY_");
  const document = {
    issuer,
    jwks_uri: `${issuer}/jwks`,
    authorization_endpoint: `${issuer}/authorize`,
    id_token_signing_alg_values_supported: ["ES256", "RS256"],
    ...metadata?.(issuer, plain),
  };
  const type = isAbout ? discovery?.headers?.find(([name]) => name === "content-type")?.[1] : undefined;
  const status = isAbout ? (discovery?.status ?? 200) : 200;
  response.writeHead(status, { "content-type": type ?? "application/json" });
  response.end(code === "DISCOVERY_NOT_JSON" ? discovery?.body : JSON.stringify(document));
}
