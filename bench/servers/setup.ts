import { readFileSync } from "node:fs";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type Provider, createProvider, localSigner } from "../../src/index.ts";

/** What jwksd answers, for the servers that do it by hand, so that only the way to answer differs. */
export interface Wanted {
  readonly text: string;
  readonly etag: string;
  /** Of the 200, without Content-Length. */
  readonly headers: Readonly<Record<string, string>>;
  readonly contentLength: number;
  /** Of the 304. */
  readonly notModifiedHeaders: Readonly<Record<string, string>>;
}

type PrivateJwk = Readonly<Record<string, string>>;

/** The private keys of this run: a JWK Set file, the first argument of every server. */
export function privateJwks(): readonly PrivateJwk[] {
  return (JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as { keys: PrivateJwk[] }).keys;
}

/** Which of its replies a constant server gives: the second argument. */
export const variant = process.argv[3] ?? "";

export async function makeProvider(): Promise<Provider> {
  const keyset = await Promise.all(
    privateJwks().map(async (jwk) => ({ kid: jwk["kid"] ?? "", signer: await localSigner(jwk) })),
  );
  return createProvider({ issuer: "https://op.example", keyset });
}

export async function wantedReply(): Promise<Wanted> {
  const { fetch, jwksUri } = await makeProvider();
  const full = await fetch(new Request(jwksUri));
  const etag = full.headers.get("etag") ?? "";
  const notModified = await fetch(new Request(jwksUri, { headers: { "if-none-match": etag } }));
  const text = await full.text();
  const { "Content-Length": _, ...headers } = named(full);
  return { text, etag, headers, contentLength: text.length, notModifiedHeaders: named(notModified) };
}

/** Names as they are usually written; `Headers` gives them in lower case. */
function named(response: Response): Record<string, string> {
  return Object.fromEntries([...response.headers].map(([name, value]) => [usualName(name), value]));
}

function usualName(name: string): string {
  return name === "etag" ? "ETag" : name.replace(/(?<=^|-)[a-z]/g, (letter) => letter.toUpperCase());
}

export function listen(server: Server): void {
  server.listen(0, "127.0.0.1", () => listening((server.address() as AddressInfo).port));
}

/** Tells the parent the port; answers each line of it with the memory in use; ends with the parent. */
export function listening(port: number): void {
  console.log(port);
  process.stdin.on("data", () => {
    (globalThis as { gc?: () => void }).gc?.();
    console.log(JSON.stringify(process.memoryUsage()));
  });
  process.stdin.on("end", () => process.exit());
}
