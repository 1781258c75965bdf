import { randomUUID } from "node:crypto";
import { bytesWithin } from "../../base/bytes.ts";
import { cacheDirectives } from "../../base/cache-control.ts";
import { IoError } from "../../base/errors.ts";
import { cachedForSeconds } from "../../rotation/rules/policy.ts";
import type { StaticDocument } from "./documents.ts";

const timeoutMs = 10_000;

/**
 * Reads documents as relying parties do, but bypasses caches, and compares them byte for byte. Also rejects a
 * Cache-Control that lets caches keep them longer than a rotation allows for.
 *
 * @param base the documents' base URL, with a trailing slash
 * @throws IoError `ERR_NOT_SERVED`
 */
export async function readBack(base: string, documents: readonly StaticDocument[], signal: AbortSignal): Promise<void> {
  await Promise.all(documents.map((document) => readOne(base + document.path, document, signal)));
}

async function readOne(url: string, { body }: StaticDocument, signal: AbortSignal): Promise<void> {
  const response = await fetch(`${url}?jwksd=${randomUUID()}`, {
    headers: { "Cache-Control": "no-cache", Pragma: "no-cache" },
    redirect: "manual",
    signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
  }).catch((error: unknown) => {
    throw notServed(url, `cannot be read (${failureText(error)})`, error);
  });
  const read = await bytesWithin(response.body, body.length).catch((error: unknown) => {
    throw notServed(url, `cannot be read completely (${failureText(error)})`, error);
  });
  if (response.status !== 200) throw notServed(url, `returned ${response.status} instead of 200`);
  if (read === undefined || !Buffer.from(read).equals(body))
    throw notServed(url, "does not serve the written document yet");
  const seconds = keptFor(response.headers.get("cache-control") ?? "");
  if (seconds <= cachedForSeconds.long) return;
  const kept = Number.isFinite(seconds) ? `for ${seconds} s` : "indefinitely";
  throw notServed(
    url,
    `has a Cache-Control that lets caches keep it ${kept}, but a rotation allows for only ${cachedForSeconds.long} s; configure the server to send the document's Cache-Control`,
  );
}

/**
 * Returns how long a cache may serve the response, in seconds. Returns `Infinity` if the header sets no age, because
 * caches then guess (RFC 9111 section 4.2.2).
 */
function keptFor(cacheControl: string): number {
  const { noStore, noCache, maxAge = Infinity, whileRevalidated } = cacheDirectives(cacheControl);
  return noStore || noCache ? 0 : maxAge + whileRevalidated;
}

function failureText(error: unknown): string {
  const { cause, name } = error as { readonly name: string; readonly cause?: { readonly code?: string } };
  return cause?.code ?? name;
}

function notServed(url: string, problem: string, cause?: unknown): IoError {
  return new IoError("ERR_NOT_SERVED", `${url} ${problem}`, { cause });
}
