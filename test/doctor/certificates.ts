import { createHash, createPublicKey, generateKeyPairSync, sign } from "node:crypto";
import { der, ecdsaWithSha256, hex, sequence } from "../client/certificate.ts";
import { withoutPrivate } from "../support/keys.ts";

const authority = generateKeyPairSync("ec", { namedCurve: "P-256" });
const name = sequence(der(0x31, sequence(hex("0603550403"), der(0x0c, Buffer.from("doctor")))));
const time = (at: string): Buffer => der(0x18, Buffer.from(`${at.replaceAll("-", "")}000000Z`));

/** Returns the certificate of the authority that signs all of them. */
export const authorityCertificate = (): string =>
  certificate(authority.publicKey.export({ format: "jwk" })).x5c[0] ?? "";

/** Creates a certificate for the public half of a JWK: base64 DER, with its digests as members of a JWK. @see RFC 5280 section 4.1 */
export function certificate(jwk: object, { from = "2020-01-01", to = "2049-12-31" } = {}) {
  const spki = createPublicKey({ key: withoutPrivate(jwk), format: "jwk" }).export({ type: "spki", format: "der" });
  const version = der(0xa0, der(0x02, hex("02")));
  const serial = der(0x02, hex("01"));
  const body = sequence(version, serial, ecdsaWithSha256, name, sequence(time(from), time(to)), name, spki);
  const signature = der(0x03, hex("00"), sign("sha256", body, authority.privateKey));
  const raw = sequence(body, ecdsaWithSha256, signature);
  const digest = (algorithm: string): string => createHash(algorithm).update(raw).digest("base64url");
  return { x5c: [raw.toString("base64")], x5t: digest("sha1"), "x5t#S256": digest("sha256") };
}
