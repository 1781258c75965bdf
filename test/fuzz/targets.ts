// One function for each kind of untrusted input. The fuzzer calls it with mutated bytes, and it throws if a property is violated. Every input
// must either be accepted or be rejected with a JwksdError.

import assert from "node:assert/strict";
import {
  type JsonWebKey,
  type KeyObject,
  createPrivateKey,
  createPublicKey,
  sign,
  verify as isValid,
} from "node:crypto";
import { type CryptoKey, importJWK, jwtVerify } from "jose";
import { cacheDirectives, parseCacheControl } from "../../src/base/cache-control.ts";
import { JwksdError } from "../../src/base/errors.ts";
import { es256FromDer } from "../../src/keys/crypto/ecdsa-der.ts";
import { readPem } from "../../src/keys/jwk/pem.ts";
import { readKey, readKeySet, readKeyText } from "../../src/keys/jwk/read-key.ts";
import { verificationKeys } from "../../src/keys/jwk/verification-keys.ts";
import { notModified } from "../../src/publish/if-none-match.ts";
import { checkEncryption, checkSigning } from "../../src/publish/keyset-check.ts";
import { parseDocument } from "../../src/rotation/custody/document.ts";
import { createWrapping, readWrappingKeys } from "../../src/rotation/custody/key-wrapping.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import { createIssuerTemplate } from "../../src/rotation/issuers/issuer-template.ts";
import { readFields, bytesField, numberField } from "../../src/service/signing/protobuf.ts";
import { createBearerGuard } from "../../src/verify/bearer/bearer-guard.ts";
import { verify } from "../../src/verify/token/verify.ts";

const text = (input: Uint8Array): string => new TextDecoder().decode(input);
/** Returns bytes as a header value contains them. */
const fieldValue = (input: Uint8Array): string =>
  Buffer.from(input)
    .toString("latin1")
    .replaceAll(/[\0\r\n]/g, " ");

/** Returns the result, or `undefined` if the input was refused as documented. */
async function accepted<Result>(read: () => Result | Promise<Result>): Promise<Result | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof JwksdError) return undefined;
    throw error;
  }
}

const issuer = "https://op.example";
const audience = "api";
const publicJwk = {
  kty: "EC",
  crv: "P-256",
  x: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
  y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
};
/** The example key in RFC 7515 appendix A.3. */
const privateKey = createPrivateKey({
  key: { ...publicJwk, d: "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI" },
  format: "jwk",
});
const publicKey = (await importJWK(publicJwk, "ES256")) as CryptoKey;
const nowSeconds = 1_700_000_000;
const clock = { now: () => nowSeconds * 1000, setTimer: () => () => {} };
const keys = ({ kid }: { readonly kid?: unknown }) => (kid === "a" ? publicKey : undefined);
const base64url = (value: string): string => Buffer.from(value).toString("base64url");

/** An unchanged token, or the header and claims before and after the first NUL, which are then signed. */
function tokenOf(input: Uint8Array): string {
  const [header = "", claims] = text(input).split("\0", 2);
  if (claims === undefined) return header;
  const signed = `${base64url(header)}.${base64url(claims)}`;
  return `${signed}.${sign("sha256", Buffer.from(signed), { key: privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
}

/** Whatever jwksd accepts, jose accepts with the same content. */
export async function jws(input: Uint8Array): Promise<void> {
  const token = tokenOf(input);
  const found = await accepted(() => verify(token, { keys, issuer, audience, algorithms: ["ES256"], clock }));
  if (found === undefined) return;
  const options = { issuer, audience, algorithms: ["ES256"], currentDate: new Date(clock.now()), clockTolerance: 60 };
  const { payload, protectedHeader } = await jwtVerify(token, publicKey, options);
  assert.deepEqual({ header: found.header, claims: found.claims }, { header: protectedHeader, claims: payload });
}

const wrapping = createWrapping(await readWrappingKeys("A".repeat(43)), issuer);

/** A wrapped key is opened as it was wrapped, or refused. */
export async function jwe(input: Uint8Array): Promise<void> {
  const value = text(input);
  const found = await accepted(() => wrapping.unwrap("a", value));
  if (found !== undefined) assert.ok(wrapping.isCurrent(value));
}

const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "k", "oth", "priv"];

/** A key that a keyset accepts is published with its public members only, and Node reads it as the same key. */
export async function jwk(input: Uint8Array): Promise<void> {
  const publicKey = text(input);
  const found = await accepted(() => readKey(publicKey, "the key"));
  if (found === undefined) return;
  const signing = await accepted(() => checkSigning([{ kid: "a", publicKey: found.publicJwk }]));
  const encryption = await accepted(() => checkEncryption([{ kid: "a", publicKey }]));
  for (const { jwk: key } of [...(signing?.entries ?? []), ...(encryption ?? [])]) {
    assert.ok(privateMembers.every((name) => !Object.hasOwn(key, name)));
    assertSameKey({ ...key }, createPublicKey({ key: { ...key }, format: "jwk" }));
  }
}

/** No public key that is read has a private member. */
export async function jwkSet(input: Uint8Array): Promise<void> {
  const json = text(input);
  for (const key of (await accepted(() => readKeySet(json, "the set"))) ?? []) {
    assert.ok(privateMembers.every((name) => !Object.hasOwn(key.publicJwk, name)));
  }
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return;
  }
  await accepted(() => verificationKeys(value));
}

/** Whatever PEM text jwksd reads, Node reads as the same public key. */
export async function pem(input: Uint8Array): Promise<void> {
  const value = text(input);
  await accepted(() => readKeyText(value, "the file"));
  const found = await accepted(() => readPem(value, "the file"));
  if (found === undefined || found.d !== undefined) return;
  const key: JsonWebKey = { ...found };
  assertSameKey(key, createPublicKey({ key, format: "jwk" }));
}

/** Whatever DER jwksd reads in a PEM block, Node reads as the same key. */
export async function derKey(input: Uint8Array): Promise<void> {
  const key = Buffer.from(input);
  const read = (label: string) => {
    const block = `-----BEGIN ${label}-----\n${key.toString("base64")}\n-----END ${label}-----\n`;
    return accepted(() => readPem(block, "the file"));
  };
  const found = await read("PUBLIC KEY");
  if (found !== undefined) assertSameKey({ ...found }, createPublicKey({ key, format: "der", type: "spki" }));
  const half = await read("PRIVATE KEY");
  if (half === undefined) return;
  assertSameKey({ ...half }, createPublicKey(createPrivateKey({ key, format: "der", type: "pkcs8" })));
}

function assertSameKey({ kty, crv, x, y, n, e }: JsonWebKey, key: KeyObject): void {
  const other = key.export({ format: "jwk" });
  assert.deepEqual([kty, crv, x, y, n, e], [other.kty, other.crv, other.x, other.y, other.n, other.e]);
}

const signedByService = Buffer.from("signed by a key service");
const exampleKey = createPublicKey(privateKey);
const isSignature = (signature: Uint8Array, dsaEncoding: "der" | "ieee-p1363"): boolean =>
  isValid("sha256", signedByService, { key: exampleKey, dsaEncoding }, signature);

/** A key service's DER signature, once converted, is valid if and only if OpenSSL accepts the DER. */
export async function derSignature(input: Uint8Array): Promise<void> {
  const raw = await accepted(() => es256FromDer(input, "the key"));
  assert.equal(raw !== undefined && isSignature(raw, "ieee-p1363"), isSignature(input, "der"));
}

/** Numbers are counts of seconds. Names are in lower case. */
export function cacheControl(input: Uint8Array): void {
  const value = fieldValue(input);
  const ages = [...parseCacheControl(value)];
  for (const [name, seconds] of ages) {
    assert.equal(name, name.toLowerCase());
    if (seconds !== undefined) assert.ok(Number.isInteger(seconds) && seconds >= 0 && seconds <= 2 ** 31);
  }
  const { maxAge = 0, whileRevalidated } = cacheDirectives(value);
  assert.ok(maxAge >= 0 && whileRevalidated >= 0);
}

/** A 304 needs the ETag or a star in the field, and adding the ETag to a list that is well-formed gives a 304. */
export function ifNoneMatch(input: Uint8Array): void {
  const value = fieldValue(input);
  const etag = '"etag"';
  if (notModified(value, etag)) assert.ok(value.includes(etag) || value.trim() === "*");
  if (notModified(`${value}, ${etag}`, etag)) assert.ok(notModified(`${etag}, ${value}`, etag));
}

/** Fields are the same after they are written and read again. */
export function protobuf(input: Uint8Array): void {
  let fields;
  try {
    fields = readFields(input);
  } catch (error) {
    assert.ok(error instanceof RangeError);
    return;
  }
  const known = [...fields].filter(
    ([number, value]) => number < 2 ** 28 && (typeof value !== "bigint" || value < 2 ** 53),
  );
  const written = Buffer.concat(
    known.map(([number, value]) =>
      typeof value === "bigint" ? numberField(number, Number(value)) : bytesField(number, value),
    ),
  );
  assert.deepEqual([...readFields(written)].map(String), known.map(String));
}

/** A store's content is a document or an error. */
export async function storeDocument(input: Uint8Array): Promise<void> {
  const value = text(input);
  await accepted(() => parseDocument(unsealed(value)));
  const found = await accepted(() => parseDocument(value));
  if (found !== undefined) assert.ok(found.format === 1 || found.format === 2);
}

const remote = { issuer, keys };
const bearers = [
  createBearerGuard({ issuer: remote, audience, clock, baseUrl: "https://api.example" }),
  createBearerGuard({ issuer: remote, audience, clock, baseUrl: "https://api.example", dpop: "required" }),
];

/** A guard lets a request through or returns 400, 401 or 403; it never fails. Input: an Authorization header, a NUL, and a DPoP header. */
export async function authorization(input: Uint8Array): Promise<void> {
  const [value = "", proof] = Buffer.from(input).toString("latin1").split("\0", 2);
  const headers = new Headers();
  try {
    headers.set("Authorization", value);
    if (proof !== undefined) headers.set("DPoP", proof);
  } catch {
    return;
  }
  for (const bearer of bearers) {
    const reply = await bearer.check(new Request("https://api.example/orders", { headers }));
    if (reply instanceof Response) assert.ok([400, 401, 403].includes(reply.status), String(reply.status));
  }
}

const names = ["https://*.example.com", "https://login.example.com/tenants/*", "https://*"].map(createIssuerTemplate);

/** A request belongs to a canonical issuer of the template or to none. Input: a Host header, a NUL, and a request target. */
export async function issuerOfRequest(input: Uint8Array): Promise<void> {
  const [host = "", target = "/jwks"] = text(input).split("\0", 2);
  for (const template of names) {
    const found = template.issuerOf(target, host);
    if (found === undefined || !template.holds(found)) continue;
    assert.equal(new URL(found).href.replace(/\/$/, ""), found);
  }
}
