import { generateKeyPairSync, sign } from "node:crypto";

/** A self-signed certificate with its key, as PEM; the certificate is its own authority. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

/** Returns a DER value. @see ITU-T X.690 section 8.1 */
export function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  const { length } = body;
  const lengthBytes = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...lengthBytes]), body]);
}

export const sequence = (...parts: readonly Uint8Array[]): Buffer => der(0x30, ...parts);
export const hex = (text: string): Buffer => Buffer.from(text, "hex");
export const ecdsaWithSha256 = sequence(hex("06082a8648ce3d040302"));
const commonName = hex("0603550403");
const subjectAltName = hex("0603551d11");

/** Creates a certificate for host names, valid until 2049. @see RFC 5280 section 4.1 */
export function certificateFor(...hosts: readonly string[]): Certificate {
  return certificateUntil("491231235959Z", ...hosts);
}

/** Creates a certificate that is valid until this time, written as `YYMMDDhhmmssZ`. */
export function certificateUntil(end: string, ...hosts: readonly string[]): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const name = sequence(der(0x31, sequence(commonName, der(0x0c, Buffer.from("jwksd test")))));
  const validity = sequence(...["200101000000Z", end].map((time) => der(0x17, Buffer.from(time))));
  const names = sequence(...hosts.map((host) => der(0x82, Buffer.from(host))));
  const extensions = der(0xa3, sequence(sequence(subjectAltName, der(0x04, names))));
  const version = der(0xa0, der(0x02, hex("02")));
  const serial = der(0x02, hex("01"));
  const spki = publicKey.export({ type: "spki", format: "der" });
  const body = sequence(version, serial, ecdsaWithSha256, name, validity, name, spki, extensions);
  const signature = der(0x03, hex("00"), sign("sha256", body, privateKey));
  const certificate = sequence(body, ecdsaWithSha256, signature).toString("base64");
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${certificate.match(/.{1,64}/g)?.join("\n")}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  };
}
