import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { type IncomingMessage, type RequestListener, type ServerResponse, createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { gzipSync } from "node:zlib";
import type { Row } from "../../src/doctor/verifiers/outcome-row.ts";
import { certificateFor } from "../client/certificate.ts";
import { ecKey, rsaKey } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { isSoak } from "../support/soak.ts";
import { compact, signature } from "../token/compact.ts";
import { type Client, type Configured, audience, nonce } from "./clients.ts";
import { type Fixture, fixtures } from "./fixtures.ts";
import { bytes, observed, published, sound } from "./observed.ts";

// Runs verifiers against documents with one finding each, over TLS on loopback: with a token signed with a sound key, and one of the key in question.

/** Reports whether a fixture can be tried, without a network, a delay or several fetches. */
function isTried({ code, about }: Fixture): boolean {
  if (code.startsWith("WATCH_") || code.startsWith("HTTP_SLOW")) return false;
  const untried = [
    "HTTP_TIMEOUT",
    "HTTP_ADDRESSES_DIFFER",
    "DISCOVERY_JWKS_URI_PRIVATE",
    "DISCOVERY_JWKS_URI_SITE",
    "DISCOVERY_PATHS",
  ];
  if (untried.includes(code)) return false;
  return !["watched", "in time", "unreachable", "not HTTP", "endless", "loop"].includes(about ?? "");
}

const tried = fixtures.filter(isTried);

/** Reports whether a verifier reads the faulty part itself. Verifiers that receive a parsed document do not read headers. */
function concerns({ fetches, discovers }: Client, { code }: Fixture): boolean {
  if (code.startsWith("DISCOVERY_")) return discovers;
  return fetches || code.startsWith("JWKS_");
}

export type Failing = "every token" | "its tokens" | undefined;

/** Starts servers with every finding. `certificate` is the trusted one. */
export async function startServers() {
  const trusted = getCACertificates("default");
  const certificate = certificateFor("localhost");
  const cleanUp: (() => void)[] = [];
  const scope = { after: (end: () => void) => void cleanUp.push(end) };
  const folder = await mkdtemp(join(tmpdir(), "jwksd-verifiers-"));
  const file = join(folder, "certificate.pem");
  await writeFile(file, certificate.cert);
  setDefaultCACertificates([...trusted, certificate.cert]);
  let plain = "";
  const listener = serveAll([...tried, good], () => plain);
  const [https, http, other] = await Promise.all([
    listening(scope, createTlsServer(certificate, listener)),
    listening(scope, createServer(listener)),
    listening(scope, createTlsServer(certificateFor("localhost"), listener)),
  ]);
  plain = `http://localhost:${http}`;
  const origins = { https: `https://localhost:${https}`, plain, untrusted: `https://localhost:${other}` };
  const stop = async (): Promise<void> => {
    setDefaultCACertificates(trusted);
    for (const end of cleanUp) end();
    await rm(folder, { recursive: true });
  };
  return { origins, certificate: file, folder, stop };
}

export type Origins = Awaited<ReturnType<typeof startServers>>["origins"];

/** Returns which tokens of a sound provider a verifier refuses. It must accept all, or its rows would show nothing. */
export async function refusesGood(client: Client, origins: Origins): Promise<Failing> {
  return failing(client, good, `${origins.https}/${tried.length}`);
}

/** Returns the rows of the table, with a letter for each of these verifiers. */
export async function tryAll(clients: readonly Client[], origins: Origins): Promise<Row[]> {
  const columns = await Promise.all(clients.map((client) => tryOne(client, origins)));
  return tried.map(({ code, about }, row) => {
    return { code, form: about ?? "", outcomes: columns.map((outcomes) => outcomes[row]).join("") };
  });
}

/** Returns one letter for each finding. */
async function tryOne(client: Client, { https, plain, untrusted }: Origins): Promise<string[]> {
  const outcomes: string[] = [];
  for (const [index, fixture] of tried.entries()) {
    const origin = fixture.code === "HTTP_PLAIN" ? plain : fixture.code === "TLS_INVALID" ? untrusted : https;
    outcomes.push(concerns(client, fixture) ? letterOf(await failing(client, fixture, `${origin}/${index}`)) : "-");
  }
  return outcomes;
}

function letterOf(fails: Failing): string {
  if (fails === undefined) return ".";
  return fails === "every token" ? "a" : "i";
}

const tenant = "9188040d-6c67-4c5b-b112-36a304b66dad";

/** Returns which tokens a client refuses. */
async function failing(client: Client, fixture: Fixture, served: string): Promise<Failing> {
  const asked = fixture.asked?.(served) ?? served;
  const metadata = fixture.metadata?.(served, served) ?? {};
  const said = "issuer" in metadata && typeof metadata["issuer"] === "string" ? metadata["issuer"] : asked;
  const iss = said.replace("{tenantid}", tenant);
  const isElsewhere = !asked.startsWith(served);
  const configured: Configured = {
    issuer: isElsewhere ? served : asked,
    jwksUri: `${served}/jwks`,
    iss,
    ...(isElsewhere && { known: asked }),
  };
  const claims = { iss, aud: audience, sub: "subject", tid: tenant, nonce, iat: seconds(), exp: seconds() + 600 };
  const refuses = async (header: object, key: object, alg: string): Promise<boolean> => {
    const token = compact({ alg, typ: "JWT", ...header }, claims, signature(alg, key));
    return inTime(client.verify(token, configured)).then(
      () => false,
      () => true,
    );
  };
  const named = fixture.namesKeys === false ? {} : { kid: soundKid(fixture) };
  if (await refuses(named, ecKey(soundKid(fixture)), "ES256")) return "every token";
  const { signs } = fixture;
  if (signs === undefined) return undefined;
  const kid = "kid" in signs ? signs.kid : "odd";
  return (await refuses(kid === undefined ? {} : { kid }, signs.key, signs.alg)) ? "its tokens" : undefined;
}

const seconds = (): number => Math.floor(Date.now() / 1000);

const good: Fixture = {
  code: "HTTP_PLAIN",
  observations: observed({ keys: [sound, published("rsa", rsaKey(), "RS256")] }),
  signs: { key: rsaKey(), alg: "RS256", kid: "rsa" },
};

/** Returns the kid of a sound key: tests generate keys from their kids. */
function soundKid({ observations: { set } }: Fixture): string {
  try {
    const { keys } = JSON.parse(Buffer.from(set?.body ?? []).toString()) as { keys: { kid?: unknown; x?: unknown }[] };
    const kids = keys.flatMap(({ kid, x }) => (typeof kid === "string" && ecKey(kid).x === x ? [kid] : []));
    return kids.includes("sound") ? "sound" : (kids[0] ?? "sound");
  } catch {
    return "sound";
  }
}

/** Serves each fixture at its number. */
function serveAll(served: readonly Fixture[], plainOrigin = () => ""): RequestListener {
  return (request, response) => {
    const [, index = "", path = ""] = /^\/(\d+)(?:\?[^/]*)?(\/.*)$/.exec(request.url ?? "") ?? [];
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
  const framing = new Set(["content-length", "transfer-encoding"]);
  const headers = (set?.headers ?? []).filter(([name]) => !framing.has(name)).flat();
  const document = set?.status === 200 ? (set.body ?? bytes({ keys: [sound] })) : bytes({ keys: [sound] });
  const body = headers.includes("gzip") ? gzipSync(document) : document;
  if (fixture.code === "HTTP_INCOMPLETE") {
    response.writeHead(200, { "content-type": "application/json", "content-length": body.length + 100 });
    response.write(body, () => response.destroy());
    return;
  }
  response.writeHead(status, isTurnedAway ? [] : headers).end(isTurnedAway ? "no" : body);
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

const patienceMs = isSoak ? 30_000 : 6_000;

/** Rejects if a verifier never finishes, as jwks-rsa does at a body that ends early. */
function inTime(verified: Promise<unknown>): Promise<unknown> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error("no result")), patienceMs);
  return Promise.race([verified, late.promise]).finally(() => clearTimeout(timer));
}
