import type { IncomingMessage } from "node:http";
import { SignerError, TokenError } from "../../base/errors.ts";

/** A token has at most 16 KiB. Escapes can make its claims longer on the way. */
const maxBytes = 65_536;

/** A body is longer than {@link maxBytes}. What is left of it is thrown away as it arrives. */
export class TooLong extends TokenError {
  constructor() {
    super("ERR_CLAIMS_INVALID", `the body is longer than ${maxBytes} bytes`);
  }
}

/** Reads the body of a request. Rejects with {@link TooLong}, or `ERR_SIGNER_ABORTED` when the connection ends. */
export function readBody(request: IncomingMessage): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const refuse = (): void => {
      request.removeAllListeners("data");
      request.resume();
      reject(new TooLong());
    };
    const leave = (): void => reject(new SignerError("ERR_SIGNER_ABORTED", "the caller left amid its request"));
    request.once("error", leave).once("close", leave);
    if (request.destroyed) leave();
    if (Number(request.headers["content-length"] ?? 0) > maxBytes) return refuse();
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length > maxBytes) return refuse();
      chunks.push(chunk);
    });
    request.once("end", () => resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks)));
  });
}
