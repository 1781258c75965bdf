import type { Readable } from "node:stream";
import { SignerError } from "../../base/errors.ts";

/**
 * Maximum size of a body, in bytes. A token is at most 16 KiB, but with escape sequences, its claims can take more
 * space in the request.
 */
export const maxBodyBytes = 65_536;

/**
 * Reads a request body. If it is longer than {@link maxBodyBytes}, returns `undefined` and discards the rest as it
 * arrives.
 *
 * @throws SignerError `ERR_SIGNER_ABORTED` if the connection ends first
 */
export function readBody(request: Readable): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const abort = (): void =>
      reject(new SignerError("ERR_SIGNER_ABORTED", "the caller disconnected before its request was complete"));
    request.once("error", abort).once("close", abort);
    if (request.destroyed) abort();
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length > maxBodyBytes) resolve(undefined);
      else chunks.push(chunk);
    });
    request.once("end", () => resolve(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)));
  });
}
