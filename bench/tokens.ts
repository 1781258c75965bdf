import { KeyObject, sign as signBytes, verify as verifyBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { JwtVerifier } from "aws-jwt-verify";
import { SimpleJwksCache } from "aws-jwt-verify/jwk";
import { createVerifier } from "fast-jwt";
import buildGetJwks from "get-jwks";
import { SignJWT, createRemoteJWKSet, jwtVerify } from "jose";
import jsonwebtoken from "jsonwebtoken";
import jwksClient from "jwks-rsa";
import { createProvider, localSigner, verify } from "../src/index.ts";
import { createRemoteKeySet } from "../src/verify/relying-party/index.ts";
import type { Plan } from "./comparisons.ts";
import { median } from "./measure.ts";
import { type Goal, type Section, table } from "./report.ts";

const audience = "api";
/** Duration of a round in milliseconds. Rounds are short and many, so that other load affects few of them. */
const roundMs = 10;
const warmUpMs = 2;
const roundsPerRound = 60;
const inFlight = [1, 32];

type Task = () => Promise<unknown>;
type Contestants = Readonly<Record<string, Task>>;

/** Measures the verification of one token with cached keys. */
export async function verification({ rounds }: Plan): Promise<Section> {
  const { provider, pair, close } = await startProvider();
  const { issuer, jwksUri } = provider;
  const token = await provider.sign({ sub: "alice", aud: audience }, { lifetimeSeconds: 3600 });
  const signingInput = Buffer.from(token.slice(0, token.lastIndexOf(".")));
  const signature = Buffer.from(token.slice(token.lastIndexOf(".") + 1), "base64url");
  const publicKey = KeyObject.from(pair.publicKey);
  const der = signBytes("sha256", signingInput, KeyObject.from(pair.privateKey));
  const options = { issuer, audience, algorithms: ["ES256"] };
  const ours = createRemoteKeySet({ issuer });
  const joses = createRemoteJWKSet(new URL(jwksUri));
  const jwksRsa = jwksClient({ jwksUri });
  const getJwks = buildGetJwks({ jwksPath: "jwks" });
  const fastJwt = createVerifier({
    key: ({ header: { alg, kid } }: { header: Record<string, unknown> }) =>
      getJwks.getPublicKey({ domain: issuer, alg: alg as string, kid: kid as string }),
    allowedIss: issuer,
    allowedAud: audience,
    algorithms: ["ES256"],
  });
  // It has no key set, so it verifies with an imported key.
  const fastJwtAlone = createVerifier({
    key: publicKey.export({ type: "spki", format: "pem" }),
    allowedIss: issuer,
    allowedAud: audience,
    algorithms: ["ES256"],
  });
  const jwksCache = new SimpleJwksCache({ fetcher: { fetch: async (uri) => (await fetch(uri)).arrayBuffer() } });
  const aws = JwtVerifier.create({ issuer, audience, jwksUri }, { jwksCache });

  const results = await alternate(
    {
      "jose, createRemoteJWKSet": () => jwtVerify(token, joses, options),
      "jwksd key set, jose.jwtVerify": () => jwtVerify(token, ours, options),
      "jwksd key set, jwksd verify": () => verify(token, { ...options, keys: ours }),
      "jwks-rsa, jsonwebtoken": async () => {
        const key = await jwksRsa.getSigningKey(jsonwebtoken.decode(token, { complete: true })?.header.kid);
        return jsonwebtoken.verify(token, key.getPublicKey(), { issuer, audience, algorithms: ["ES256"] });
      },
      "get-jwks, fast-jwt": async () => fastJwt(token),
      "fast-jwt, imported key": async () => fastJwtAlone(token),
      "aws-jwt-verify": () => aws.verify(token),
      "Web Crypto alone": () =>
        crypto.subtle.verify({ name: "ECDSA", hash: "SHA-256" }, pair.publicKey, signature, signingInput),
      "node:crypto alone, synchronous": async () => verifyBytes("sha256", signingInput, publicKey, der),
    },
    rounds,
  );
  ours.close();
  await close();
  return {
    title: "Verifying with cached keys",
    text: resultsTable(results, "jose, createRemoteJWKSet"),
    goals: [
      ...goals(results, "verify", "jwksd key set, jwksd verify", "jose, createRemoteJWKSet", 1.3),
      ...goals(results, "verify", "jwksd key set, jwksd verify", "aws-jwt-verify", 1),
      ...goals(results, "verify", "jwksd key set, jwksd verify", "get-jwks, fast-jwt", 1),
      ...goals(results, "verify", "jwksd key set, jwksd verify", "fast-jwt, imported key", 1),
    ],
  };
}

/** Measures signing with a key in this process's memory. */
export async function signing({ rounds }: Plan): Promise<Section> {
  const { provider, pair, close } = await startProvider();
  const signer = await localSigner(pair);
  const message = new TextEncoder().encode("x".repeat(300));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", message));
  const privateKey = KeyObject.from(pair.privateKey);
  const results = await alternate(
    {
      "jose, SignJWT": () =>
        new SignJWT({ sub: "alice", aud: audience })
          .setProtectedHeader({ alg: "ES256", kid: "key", typ: "JWT" })
          .setIssuer(provider.issuer)
          .setIssuedAt()
          .setExpirationTime("1h")
          .sign(pair.privateKey),
      "jwksd, provider.sign": () => provider.sign({ sub: "alice", aud: audience }, { lifetimeSeconds: 3600 }),
      "jwksd, the signer alone": () => signer.sign({ message, digest }),
      "Web Crypto alone": () => crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, pair.privateKey, message),
      "node:crypto alone, synchronous": async () => signBytes("sha256", message, privateKey),
    },
    rounds,
  );
  await close();
  return {
    title: "Signing",
    text: resultsTable(results, "jose, SignJWT"),
    goals: goals(results, "provider.sign", "jwksd, provider.sign", "jose, SignJWT", 1.3),
  };
}

async function startProvider() {
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
  const server = createServer((request, response) => provider.node(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const provider = await createProvider({
    issuer: `http://127.0.0.1:${port}`,
    keyset: [{ kid: "key", signer: await localSigner(pair) }],
  });
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return { provider, pair, close };
}

/** The result of one round of a contestant. */
interface Round {
  readonly perSecond: number;
  /** CPU time of all threads per call, in microseconds. Other load on the machine affects it far less than the rate. */
  readonly cpuMicroseconds: number;
}

/** Results by contestant and calls in flight. */
type Results = ReadonlyMap<string, ReadonlyMap<number, readonly Round[]>>;

async function alternate(contestants: Contestants, rounds: number): Promise<Results> {
  const results = new Map(
    Object.keys(contestants).map((name) => [name, new Map(inFlight.map((count) => [count, [] as Round[]]))]),
  );
  for (let number = -1; number < rounds * roundsPerRound; number += 1) {
    for (const count of inFlight) {
      const inOrder = Object.entries(contestants);
      for (const [name, task] of number % 2 === 0 ? inOrder : inOrder.toReversed()) {
        // Excludes what the previous contestant left in caches and for the garbage collector.
        await measure(task, 1, warmUpMs);
        const round = await measure(task, count, roundMs);
        // The first round warms up.
        if (number >= 0) results.get(name)?.get(count)?.push(round);
      }
    }
  }
  return results;
}

async function measure(task: Task, count: number, ms: number): Promise<Round> {
  const start = performance.now();
  const before = process.cpuUsage();
  let done = 0;
  const worker = async (): Promise<void> => {
    while (performance.now() - start < ms) {
      await task();
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: count }, worker));
  const { user, system } = process.cpuUsage(before);
  return { perSecond: done / ((performance.now() - start) / 1000), cpuMicroseconds: (user + system) / done };
}

const roundsOf = (results: Results, name: string, count: number): readonly Round[] =>
  results.get(name)?.get(count) ?? [];

/** Returns the median ratio of a contestant to the base over all rounds. */
function ratio(results: Results, name: string, base: string, count: number, better: (round: Round) => number): number {
  const bases = roundsOf(results, base, count).map(better);
  return median(roundsOf(results, name, count).map((round, number) => better(round) / (bases[number] ?? Number.NaN)));
}

const byCpu = ({ cpuMicroseconds }: Round): number => 1 / cpuMicroseconds;
const byRate = ({ perSecond }: Round): number => perSecond;

function resultsTable(results: Results, base: string): string {
  const head = inFlight.flatMap((count) => [`CPU µs, ${count} in flight`, "ratio by CPU", "per second", "ratio"]);
  const cells = (name: string, count: number): string[] => {
    const rounds = roundsOf(results, name, count);
    return [
      median(rounds.map(({ cpuMicroseconds }) => cpuMicroseconds)).toFixed(1),
      ratio(results, name, base, count, byCpu).toFixed(2),
      Math.round(median(rounds.map(byRate))).toLocaleString("en"),
      ratio(results, name, base, count, byRate).toFixed(2),
    ];
  };
  const rows = [...results.keys()].map((name) => [name].concat(inFlight.flatMap((count) => cells(name, count))));
  return table(["", ...head], rows);
}

/** Returns a goal for each number of calls in flight, by CPU time. */
function goals(results: Results, what: string, of: string, base: string, least: number): Goal[] {
  return inFlight.map((count) => {
    const reached = ratio(results, of, base, count, byCpu);
    const speed = least === 1 ? "as fast as" : `${least} times as fast as`;
    const name = `${what}, ${count} in flight: by CPU, at least ${speed} ${base.replace(", ", " with ")}`;
    return { name, reached: reached >= least, measured: reached.toFixed(2) };
  });
}
