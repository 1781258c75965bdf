import type { CryptoKey } from "jose";
import * as base64url from "jose/base64url";
import { exportPKCS8 } from "jose/key/export";
import { importJWK } from "jose/key/import";
import { sha256, toBase64url } from "#crypto";
import type { Bytes } from "../base/bytes.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import { derFromRaw } from "../keys/crypto/ecdsa-der.ts";
import { textHash } from "../keys/crypto/text-sha256.ts";
import { generateTestKey } from "./test-keys.ts";
import { tokenOf } from "./token-faults.ts";

/** The request for which a DPoP proof is created. */
export interface TestProof {
  /** Access token that is sent with the request. */
  readonly token: string;
  /** The request's URL, without the query. */
  readonly url: string;
  /** The request's method. Default: `GET`. */
  readonly method?: string;
  /** Nonce from the API's `DPoP-Nonce` header. Default: none. */
  readonly nonce?: string | undefined;
  /** Claims to add or replace, to make the proof invalid. A value of `undefined` omits a claim. Default: none. */
  readonly claims?: Readonly<Record<string, unknown>>;
}

/** An API client that has a key and a certificate, to which tokens can be bound. */
export interface SenderConstrainedClient {
  /** The key's thumbprint, for a token's `cnf: { jkt }`. @see RFC 9449 section 6.1 */
  readonly jkt: string;
  /** Creates a proof. Each request needs a new one. @see RFC 9449 section 4.2 */
  proof(this: void, proof: TestProof): Promise<string>;
  /** The certificate's thumbprint, for a token's `cnf: { "x5t#S256": … }`. @see RFC 8705 section 3.1 */
  readonly x5t: string;
  /** Self-signed certificate in PEM format, valid from 2020 to 2049. */
  readonly certificate: string;
  /** The certificate's private key in PEM format (PKCS#8), for `https.request`. */
  readonly privateKey: string;
}

/**
 * Creates a client with a P-256 key and a certificate for it.
 *
 * @param seed the same seed always results in the same key; default: a new key
 */
export async function createSenderConstrainedClient(
  seed?: string,
  clock: Pick<Clock, "now"> = systemClock,
): Promise<SenderConstrainedClient> {
  const key = await generateTestKey("ES256", seed && `client ${seed}`);
  const { kid: _kid, alg: _alg, use: _use, ...jwk } = key.jwk;
  const publicDer = new Uint8Array(await crypto.subtle.exportKey("spki", key.publicKey));
  const der = await certificateOf(publicDer, key.sign);
  return {
    jkt: key.kid,
    x5t: toBase64url(await sha256(der)),
    certificate: pemOf(der),
    privateKey: await exportPKCS8((await importJWK(key.privateJwk, "ES256", { extractable: true })) as CryptoKey),
    async proof({ token, url, method = "GET", nonce, claims }) {
      const own = { jti: crypto.randomUUID(), htm: method, htu: url, iat: Math.floor(clock.now() / 1000) };
      return tokenOf({
        header: { typ: "dpop+jwt", alg: "ES256", jwk },
        claims: { ...own, ath: await textHash(token), nonce, ...claims },
        sign: key.sign,
      });
    },
  };
}

const pemOf = (der: Uint8Array): string =>
  `-----BEGIN CERTIFICATE-----\n${btoa(String.fromCharCode(...der)).replaceAll(/.{1,64}/g, "$&\n")}-----END CERTIFICATE-----\n`;

/**
 * DER-encodes a value that is shorter than 64 KiB.
 *
 * @see ITU-T X.690 section 8.1
 */
function value(tag: number, ...parts: readonly Uint8Array[]): Bytes {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const head = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Uint8Array.of(tag, ...head, ...parts.flatMap((part) => Array.from(part)));
}
const ascii = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Creates a self-signed certificate in DER. @see RFC 5280 section 4.1; RFC 5758 section 3.2 (ecdsa-with-SHA256) */
async function certificateOf(publicDer: Uint8Array, sign: (input: Bytes) => Promise<Uint8Array>): Promise<Bytes> {
  const algorithm = value(0x30, base64url.decode("BggqhkjOPQQDAg"));
  const commonName = value(0x30, base64url.decode("BgNVBAM"), value(0x0c, ascii("test client")));
  const name = value(0x30, value(0x31, commonName));
  const validity = value(0x30, value(0x17, ascii("200101000000Z")), value(0x17, ascii("491231235959Z")));
  const version = value(0xa0, value(0x02, Uint8Array.of(2)));
  const serial = value(0x02, Uint8Array.of(1));
  const body = value(0x30, version, serial, algorithm, name, validity, name, publicDer);
  return value(0x30, body, algorithm, value(0x03, Uint8Array.of(0), derFromRaw(await sign(body))));
}
