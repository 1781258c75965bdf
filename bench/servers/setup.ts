import { readFileSync } from "node:fs";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type Provider, createProvider, localSigner } from "../../src/index.ts";

/** jwksd's responses, for servers that send the same by hand. */
export interface ExpectedReplies {
  readonly text: string;
  readonly etag: string;
  /** Headers of the 200, without Content-Length. */
  readonly headers: Readonly<Record<string, string>>;
  readonly contentLength: number;
  /** Headers of the 304. */
  readonly notModifiedHeaders: Readonly<Record<string, string>>;
}

type PrivateJwk = Readonly<Record<string, string>>;

/** Reads this run's private keys from a JWK Set file, the first argument of every server. */
export function privateJwks(): readonly PrivateJwk[] {
  return (JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as { keys: PrivateJwk[] }).keys;
}

/** Name of the response that a constant server returns: the second argument. */
export const variant = process.argv[3] ?? "";

export async function makeProvider(): Promise<Provider> {
  const keyset = await Promise.all(
    privateJwks().map(async (jwk) => ({ kid: jwk["kid"] ?? "", signer: await localSigner(jwk) })),
  );
  return createProvider({ issuer: "https://op.example", keyset });
}

export async function expectedReplies(): Promise<ExpectedReplies> {
  const { fetch, jwksUri } = await makeProvider();
  const full = await fetch(new Request(jwksUri));
  const etag = full.headers.get("etag") ?? "";
  const notModified = await fetch(new Request(jwksUri, { headers: { "if-none-match": etag } }));
  const text = await full.text();
  const { "Content-Length": _, ...headers } = named(full);
  return { text, etag, headers, contentLength: text.length, notModifiedHeaders: named(notModified) };
}

/** Returns headers with their usual spelling; `Headers` has lower-case names. */
function named(response: Response): Record<string, string> {
  return Object.fromEntries([...response.headers].map(([name, value]) => [usualName(name), value]));
}

function usualName(name: string): string {
  return name === "etag" ? "ETag" : name.replace(/(?<=^|-)[a-z]/g, (letter) => letter.toUpperCase());
}

export function listen(server: Server): void {
  server.listen(0, "127.0.0.1", () => listening((server.address() as AddressInfo).port));
}

/** Prints the port for the parent, prints the memory in use for each line on standard input, and ends with the parent. */
export function listening(port: number): void {
  console.log(port);
  process.stdin.on("data", () => {
    (globalThis as { gc?: () => void }).gc?.();
    console.log(JSON.stringify(process.memoryUsage()));
  });
  process.stdin.on("end", () => process.exit());
}
