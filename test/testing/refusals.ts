// Prints the table in docs/testing.md: the response of each verifier to each token fault. Run: node test/testing/refusals.ts

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

/** Returns the verifiers, each as strict as its options allow. */
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

/** Returns each verifier's result for each fault: `accepted`, or the error's code or name. */
export async function refusalsOf(t: Scope): Promise<Record<"valid" | TokenFault, Record<string, string>>> {
  const issuer = await createTestIssuer();
  const { close } = await issuer.listen();
  t.after(close);
  const all = await verifiers(t, issuer);
  const resultsFor = async (token: string): Promise<Record<string, string>> => {
    const results: Record<string, string> = {};
    for (const [name, verifier] of Object.entries(all))
      results[name] = await verifier(token).then(
        () => "accepted",
        (error: { code?: string; name: string }) => error.code ?? error.name,
      );
    return results;
  };
  const rows: [string, Record<string, string>][] = [["valid", await resultsFor(await issuer.token())]];
  for (const fault of Object.keys(tokenFaults))
    rows.push([fault, await resultsFor(await issuer.token({}, { [fault]: true }))]);
  return Object.fromEntries(rows) as Record<"valid" | TokenFault, Record<string, string>>;
}

const tableRow = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;

/** Returns the table as Markdown. */
export function refusalTable({ valid, ...rows }: Awaited<ReturnType<typeof refusalsOf>>): string {
  return [
    tableRow(["fault", "token", ...Object.keys(valid)]),
    tableRow(["fault", "", ...Object.keys(valid)].map(() => "---")),
    ...Object.entries(rows).map(([fault, results]) => {
      const { title } = tokenFaults[fault as TokenFault];
      const cells = Object.values(results).map((text) => (text === "accepted" ? "**accepted**" : `\`${text}\``));
      return tableRow([`\`${fault}\``, title, ...cells]);
    }),
  ].join("\n");
}

if (import.meta.main) {
  const ends: (() => unknown)[] = [];
  console.log(refusalTable(await refusalsOf({ after: (end: () => unknown) => void ends.push(end) })));
  for (const end of ends) await end();
}
