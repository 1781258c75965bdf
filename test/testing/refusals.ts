// What verifiers say to each fault of the test issuer, as the table of docs/testing.md. Run: node test/testing/refusals.ts

import { createServer } from "node:http";
import type { TestContext } from "node:test";
import express, { type ErrorRequestHandler } from "express";
import { auth } from "express-oauth2-jwt-bearer";
import { createRemoteJWKSet, customFetch, jwtVerify } from "jose";
import jwt, { type GetPublicKeyOrSecret } from "jsonwebtoken";
import jwksRsa from "jwks-rsa";
import { verify } from "../../src/index.ts";
import { type TestIssuer, type TokenFault, createTestIssuer, tokenFaults } from "../../src/testing/index.ts";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { listening } from "../support/listening.ts";

type Verifier = (token: string) => Promise<unknown>;
type Scope = Pick<TestContext, "after">;

const algorithms = ["ES256"];

const report: ErrorRequestHandler = (error, _request, response, _next) =>
  void response.status(error.status ?? 500).end(String(error.code ?? error.message));

/** Each as strict as its options allow. */
async function verifiers(t: Scope, { issuer, audience, fetch }: TestIssuer): Promise<Record<string, Verifier>> {
  const keys = createRemoteKeySet({ issuer, fetch });
  const jwksUri = `${issuer}/jwks`;
  const josesKeys = createRemoteJWKSet(new URL(jwksUri), { [customFetch]: fetch, cooldownDuration: 0 });
  const client = jwksRsa({ jwksUri });
  const findKey: GetPublicKeyOrSecret = ({ kid }, done) =>
    client.getSigningKey(kid, (error, key) => done(error, key?.getPublicKey()));
  const options = { audience, issuer, algorithms: ["ES256" as const] };
  const app = express().set("env", "test");
  const strict = { issuerBaseURL: issuer, audience, strict: true, clockTolerance: 0, dpop: { enabled: false } };
  app.use(auth(strict), (_request, response) => void response.end());
  const port = await listening(t, createServer(app.use(report)));
  return {
    jwksd: (token) => verify(token, { keys, issuer, audience, algorithms, typ: "at+jwt" }),
    jose: (token) => jwtVerify(token, josesKeys, { ...options, typ: "at+jwt", requiredClaims: ["exp"] }),
    "express-oauth2-jwt-bearer": async (token) => {
      const headers = { Authorization: `Bearer ${token}`, Connection: "close" };
      const reply = await globalThis.fetch(`http://127.0.0.1:${port}/`, { headers });
      if (!reply.ok) throw Object.assign(new Error("refused"), { code: String(reply.status) });
    },
    "jwks-rsa, jsonwebtoken": (token) =>
      new Promise((resolve, reject) =>
        jwt.verify(token, findKey, options, (error, claims) => (error === null ? resolve(claims) : reject(error))),
      ),
  };
}

/** `accepted`, or the code or name of the error, by verifier. */
export async function refusalsOf(t: Scope): Promise<Record<"good" | TokenFault, Record<string, string>>> {
  const issuer = await createTestIssuer();
  const { close } = await issuer.listen();
  t.after(close);
  const all = await verifiers(t, issuer);
  const answers = async (token: string): Promise<Record<string, string>> => {
    const said: Record<string, string> = {};
    for (const [name, verifier] of Object.entries(all))
      said[name] = await verifier(token).then(
        () => "accepted",
        (error: { code?: string; name: string }) => error.code ?? error.name,
      );
    return said;
  };
  const rows: [string, Record<string, string>][] = [["good", await answers(await issuer.token())]];
  for (const fault of Object.keys(tokenFaults))
    rows.push([fault, await answers(await issuer.token({}, { [fault]: true }))]);
  return Object.fromEntries(rows) as Record<"good" | TokenFault, Record<string, string>>;
}

const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;

/** The table of the page. */
export function refusalTable({ good, ...rows }: Awaited<ReturnType<typeof refusalsOf>>): string {
  return [
    line(["fault", "token", ...Object.keys(good)]),
    line(["fault", "", ...Object.keys(good)].map(() => "---")),
    ...Object.entries(rows).map(([fault, said]) => {
      const { title } = tokenFaults[fault as TokenFault];
      const cells = Object.values(said).map((text) => (text === "accepted" ? "**accepted**" : `\`${text}\``));
      return line([`\`${fault}\``, title, ...cells]);
    }),
  ].join("\n");
}

if (import.meta.main) {
  const ends: (() => unknown)[] = [];
  console.log(refusalTable(await refusalsOf({ after: (end: () => unknown) => void ends.push(end) })));
  for (const end of ends) await end();
}
