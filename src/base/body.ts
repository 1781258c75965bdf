import type { Bytes } from "./bytes.ts";

/** The bytes of a body; `undefined` where it is larger, and then the rest of it is not read. */
export async function bytesWithin(body: AsyncIterable<Bytes> | null, maxBytes: number): Promise<Bytes | undefined> {
  const chunks: Bytes[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.length;
    if (bytes > maxBytes) return undefined;
    chunks.push(chunk);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}
