import { KeyObject, createSign, verify as verifySignature } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { JwtVerifier } from "aws-jwt-verify";
import { SimpleJwksCache } from "aws-jwt-verify/jwk";
import { createVerifier } from "fast-jwt";
import buildGetJwks from "get-jwks";
import { SignJWT, createRemoteJWKSet, jwtVerify } from "jose";
import jsonwebtoken from "jsonwebtoken";
import jwksClient from "jwks-rsa";
import { createProvider, localSigner, verify } from "../../src/index.ts";
import { createRemoteKeySet } from "../../src/relying-party/index.ts";
import type { Plan } from "./comparisons.ts";
import { median } from "./measure.ts";
import { type Goal, type Section, table } from "./report.ts";

const audience = "api";
/** Short, and many: what else the machine does then hits few of them. */
const roundMs = 10;
const roundsPerRound = 60;
const inFlight = [1, 32];

type Task = () => Promise<unknown>;
type Contestants = Readonly<Record<string, Task>>;

/** Verification of one token with cached keys. */
export async function verification({ rounds }: Plan): Promise<Section> {
  const { provider, pair, close } = await startProvider();
  const { issuer, jwksUri } = provider;
  const token = await provider.sign({ sub: "alice", aud: audience }, { lifetimeSeconds: 3600 });
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
  const jwksCache = new SimpleJwksCache({ fetcher: { fetch: async (uri) => (await fetch(uri)).arrayBuffer() } });
  const aws = JwtVerifier.create({ issuer, audience, jwksUri }, { jwksCache });
  const signingInput = Buffer.from(token.slice(0, token.lastIndexOf(".")));
  const signature = Buffer.from(token.slice(token.lastIndexOf(".") + 1), "base64url");
  const publicKey = KeyObject.from(pair.publicKey);

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
      "aws-jwt-verify": () => aws.verify(token),
      "Web Crypto alone": () =>
        crypto.subtle.verify({ name: "ECDSA", hash: "SHA-256" }, pair.publicKey, signature, signingInput),
      "node:crypto alone, synchronous": async () =>
        verifySignature("sha256", signingInput, { key: publicKey, dsaEncoding: "ieee-p1363" }, signature),
    },
    rounds,
  );
  ours.close();
  await close();
  return {
    title: "Verifying with cached keys",
    text: ratesTable(results, "jose, createRemoteJWKSet"),
    goals: inFlight.map((count) =>
      goal(
        `verify, ${count} in flight: at least 1.0 of jose`,
        results,
        "jwksd key set, jose.jwtVerify",
        "jose, createRemoteJWKSet",
        count,
        1,
      ),
    ),
  };
}

/** Signing, and what the check of each signature costs. */
export async function signing({ rounds }: Plan): Promise<Section> {
  const { provider, pair, close } = await startProvider();
  const signer = await localSigner(pair);
  const message = new TextEncoder().encode("x".repeat(300));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", message));
  const pem = `-----BEGIN PRIVATE KEY-----\n${Buffer.from(await crypto.subtle.exportKey("pkcs8", pair.privateKey)).toString("base64")}\n-----END PRIVATE KEY-----`;
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
      "Web Crypto, sign and verify": async () => {
        const algorithm = { name: "ECDSA", hash: "SHA-256" };
        const signature = await crypto.subtle.sign(algorithm, pair.privateKey, message);
        return crypto.subtle.verify(algorithm, pair.publicKey, signature, message);
      },
      "node:crypto alone, synchronous": async () =>
        createSign("sha256").update(message).sign({ key: pem, dsaEncoding: "ieee-p1363" }),
    },
    rounds,
  );
  await close();
  return {
    title: "Signing",
    text: `${ratesTable(results, "jose, SignJWT")}\n\njwksd verifies each signature before it leaves; "Web Crypto, sign and verify" is the limit for that.`,
    goals: [],
  };
}

async function startProvider() {
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
  const server = createServer((request, response) => provider.node(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const provider = await createProvider({
    issuer: `http://127.0.0.1:${port}`,
    keyset: [{ keyId: "key", signer: await localSigner(pair) }],
  });
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return { provider, pair, close };
}

/** Rates by contestant and calls in flight, a figure for each round. */
type Rates = ReadonlyMap<string, ReadonlyMap<number, readonly number[]>>;

async function alternate(contestants: Contestants, rounds: number): Promise<Rates> {
  const rates = new Map(
    Object.keys(contestants).map((name) => [name, new Map(inFlight.map((count) => [count, [] as number[]]))]),
  );
  for (let round = -1; round < rounds * roundsPerRound; round += 1) {
    for (const count of inFlight) {
      const inOrder = Object.entries(contestants);
      for (const [name, task] of round % 2 === 0 ? inOrder : inOrder.toReversed()) {
        const rate = await rateOf(task, count);
        // The first round warms up.
        if (round >= 0) rates.get(name)?.get(count)?.push(rate);
      }
    }
  }
  return rates;
}

async function rateOf(task: Task, count: number): Promise<number> {
  const start = performance.now();
  let done = 0;
  const worker = async (): Promise<void> => {
    while (performance.now() - start < roundMs) {
      await task();
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: count }, worker));
  return done / ((performance.now() - start) / 1000);
}

function ratios(results: Rates, name: string, base: string, count: number): number[] {
  const baseRates = results.get(base)?.get(count) ?? [];
  return (results.get(name)?.get(count) ?? []).map((rate, round) => rate / (baseRates[round] ?? Number.NaN));
}

function ratesTable(results: Rates, base: string): string {
  const head = ["", ...inFlight.flatMap((count) => [`per second, ${count} in flight`, "ratio", "range"])];
  const rows = [...results].map(([name, byCount]) =>
    [name].concat(inFlight.flatMap((count) => cells(name, byCount, count))),
  );
  return table(head, rows);

  function cells(name: string, byCount: ReadonlyMap<number, readonly number[]>, count: number): string[] {
    const all = ratios(results, name, base, count);
    return [
      Math.round(median(byCount.get(count) ?? [])).toLocaleString("en"),
      median(all).toFixed(2),
      `${Math.min(...all).toFixed(2)} to ${Math.max(...all).toFixed(2)}`,
    ];
  }
}

function goal(name: string, results: Rates, of: string, base: string, count: number, least: number): Goal {
  const reached = median(ratios(results, of, base, count));
  return { name, reached: reached >= least, measured: reached.toFixed(2) };
}
