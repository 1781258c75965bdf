import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import { oidcAdapter } from "../adapters/oidc-provider-adapter.ts";
import { type Setup, adapters, startedOnce } from "../support/adapters.ts";
import { type NamedKey, named } from "../support/keys.ts";
import type { WireReply, WireRequest } from "../support/wire.ts";

/** One requirement of the endpoint specification for one request. */
export interface Row {
  /** Section of the JWKS Endpoint Specification, with the relevant part. */
  readonly section: string;
  readonly name: string;
  /** Differences from {@link defaultSetup}. */
  readonly setup?: Partial<Setup>;
  readonly input: WireRequest;
  readonly expect: WireReply;
}

export const defaultSetup: Setup = { keys: [named("active"), named("retiring")] };

/**
 * Tests each row with every adapter, in one test for each part of the specification; a failure names its rows. Additional header fields are a
 * failure too.
 */
export function checkTable(rows: readonly Row[]): void {
  for (const adapter of [...adapters, oidcAdapter]) {
    describe(adapter.name, () => {
      const started = startedOnce(adapter);
      const applicable = rows.filter(
        ({ setup, input, expect }) =>
          adapter.takes?.({ ...defaultSetup, ...setup }, input.target, expect.status) ?? true,
      );
      for (const [section, sectionRows] of Map.groupBy(applicable, ({ section }) => section)) {
        test(`endpoint specification, section ${section}: ${sectionRows.length} rows`, async () => {
          const seen: (readonly [string, WireReply])[] = [];
          for (const { name, setup, input } of sectionRows) {
            const target = await started({ ...defaultSetup, ...setup });
            seen.push([name, comparable(await target.send(input))]);
          }
          assert.deepEqual(
            seen,
            sectionRows.map(({ name, expect }) => [name, expect]),
          );
        });
      }
    });
  }
}

/** Removes fields of the connection and the clock. Checks a problem document's form and omits its wording. */
export function comparable({ status, headers, body }: WireReply): WireReply {
  const { date: _date, connection: _connection, "keep-alive": _keepAlive, ...rest } = headers;
  if (rest["content-type"] !== "application/problem+json") return { status, headers: rest, body };
  const { "content-length": length, ...problemHeaders } = rest;
  assert.ok(Number(length) > 0);
  if (body === "") return { status, headers: problemHeaders, body };
  assert.equal(length, String(body.length));
  const problem = JSON.parse(body) as { type?: string; title?: string; status?: number };
  assert.equal(typeof problem.title, "string");
  return { status, headers: problemHeaders, body: `problem ${problem.status}` };
}

/** A document as the specification defines it: its bytes and its validator. */
export interface ExpectedDocument {
  readonly text: string;
  readonly etag: string;
}

/** Returns the document of section 2: signing keys first, then encryption keys, each with public members, kid, alg and use. */
export function expectedSet(signing: readonly NamedKey[], encryption: readonly NamedKey[] = []): ExpectedDocument {
  const keys = [
    ...signing.map((key) => published(key, "ES256", "sig")),
    ...encryption.map((key) => published(key, key["alg"] ?? (key.kty === "RSA" ? "RSA-OAEP-256" : "ECDH-ES"), "enc")),
  ];
  const text = JSON.stringify({ keys });
  return { text, etag: `"${createHash("sha256").update(text).digest("hex")}"` };
}

function published(key: NamedKey, alg: string, use: string): object {
  const { kty, crv, x, y, n, e, kid } = key;
  return kty === "EC" ? { kty, crv, x, y, kid, alg, use } : { kty, n, e, kid, alg, use };
}

/** Cache-Control values of section 3. */
export const cacheControl = {
  long: "public, max-age=3600, stale-while-revalidate=3600",
  rotation: "public, max-age=300, must-revalidate",
} as const;

type Mode = keyof typeof cacheControl;

const cors = { "access-control-allow-origin": "*", "access-control-expose-headers": "ETag, Age, Date" };
const nosniff = { "x-content-type-options": "nosniff" };

export function ok({ text, etag }: ExpectedDocument, mode: Mode = "long"): WireReply {
  const headers = {
    "content-type": "application/jwk-set+json",
    "content-length": String(text.length),
    etag,
    "cache-control": cacheControl[mode],
    ...cors,
    ...nosniff,
  };
  return { status: 200, headers, body: text };
}

/** Returns the reply to HEAD. Section 4: "the same status and headers as GET [...] with no body". */
export const withoutBody = (reply: WireReply): WireReply => ({ ...reply, body: "" });

export function notModified({ etag }: ExpectedDocument, mode: Mode = "long"): WireReply {
  return { status: 304, headers: { etag, "cache-control": cacheControl[mode], ...cors }, body: "" };
}

export const notFound = problem(404);

/** Reply to other methods, by section 7. */
export const methodNotAllowed = problem(405, { allow: "GET, HEAD" });

function problem(status: number, more: Readonly<Record<string, string>> = {}): WireReply {
  const headers = {
    "content-type": "application/problem+json",
    "cache-control": "no-store",
    ...nosniff,
    ...more,
  };
  return { status, headers, body: `problem ${status}` };
}
