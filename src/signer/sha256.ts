const nodeCrypto = globalThis.process?.getBuiltinModule?.("node:crypto");

/** SHA-256, without leaving the thread where the runtime can (Node, Bun, Deno). */
export async function sha256(message: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  return nodeCrypto !== undefined
    ? nodeCrypto.hash("sha256", message, "buffer")
    : new Uint8Array(await crypto.subtle.digest("SHA-256", message));
}
