import type { Readable } from "node:stream";
import { SignerError } from "../../base/errors.ts";

/** A token has at most 16 KiB. Escapes can make its claims longer on the way. */
export const maxBodyBytes = 65_536;

/**
 * Reads the body of a request; `undefined` where it is longer than {@link maxBodyBytes}, and what is left of it is thrown away as it arrives.
 *
 * @throws SignerError `ERR_SIGNER_ABORTED` when the connection ends
 */
export function readBody(request: Readable): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const leave = (): void => reject(new SignerError("ERR_SIGNER_ABORTED", "the caller left amid its request"));
    request.once("error", leave).once("close", leave);
    if (request.destroyed) leave();
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length > maxBodyBytes) resolve(undefined);
      else chunks.push(chunk);
    });
    request.once("end", () => resolve(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)));
  });
}
