/** SHA-256, without leaving the thread where the runtime can (Node, Bun, Deno). */
export async function sha256(message: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const nodeCrypto = globalThis.process?.getBuiltinModule?.("node:crypto");
  return nodeCrypto !== undefined
    ? nodeCrypto.createHash("sha256").update(message).digest()
    : new Uint8Array(await crypto.subtle.digest("SHA-256", message));
}
