import { randomUUID } from "node:crypto";
import { bytesWithin } from "../../base/bytes.ts";
import { cacheDirectives } from "../../base/cache-control.ts";
import { ServiceError } from "../../base/errors.ts";
import { cachedForSeconds } from "../../rotation/rules/policy.ts";
import type { StaticDocument } from "./documents.ts";

const timeoutMs = 10_000;

/**
 * Reads documents as relying parties do, but past caches, and compares them byte for byte. Also refuses a Cache-Control by which caches
 * could keep them for longer than a rotation waits.
 *
 * @param base the URL under which they are, with a slash at its end
 * @throws ServiceError `ERR_NOT_SERVED`
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
    throw notServed(url, `cannot be read (${reasonOf(error)})`, error);
  });
  const read = await bytesWithin(response.body, body.length).catch((error: unknown) => {
    throw notServed(url, `cannot be read to its end (${reasonOf(error)})`, error);
  });
  if (response.status !== 200) throw notServed(url, `answers ${response.status}, and not 200`);
  if (read === undefined || !Buffer.from(read).equals(body))
    throw notServed(url, "does not answer with what was written, yet");
  const seconds = keptFor(response.headers.get("cache-control") ?? "");
  if (seconds <= cachedForSeconds.long) return;
  const kept = Number.isFinite(seconds) ? `for ${seconds} s` : "for as long as they please";
  throw notServed(
    url,
    `has a Cache-Control by which caches may keep it ${kept}, and a rotation waits for ${cachedForSeconds.long} s; let the server send that of the document`,
  );
}

/** For how long any cache may serve what came with it, in seconds. Without an age, caches guess (RFC 9111 section 4.2.2). */
function keptFor(cacheControl: string): number {
  const { noStore, noCache, maxAge = Infinity, whileRevalidated } = cacheDirectives(cacheControl);
  return noStore || noCache ? 0 : maxAge + whileRevalidated;
}

function reasonOf(error: unknown): string {
  const { cause, name } = error as { readonly name: string; readonly cause?: { readonly code?: string } };
  return cause?.code ?? name;
}

function notServed(url: string, what: string, cause?: unknown): ServiceError {
  return new ServiceError("ERR_NOT_SERVED", `${url} ${what}`, { cause });
}
