// Only pkcs11js and a pool of sessions, in a separate process: the maximum for a signer in a child process. It receives requests for one
// signature at a time over IPC, like the simplest signer of this kind, or measures its own loop.

import type { Handle, PKCS11 } from "pkcs11js";
import { loadPkcs11js } from "../test/support/softhsm.ts";
import { type Rate, rateOf } from "./signers-rate.ts";

/** Messages to the program; the first one opens the token. */
export type RawRequest =
  | {
      readonly kind: "open";
      readonly modulePath: string;
      readonly pin: string;
      readonly sessions: number;
      readonly label: string;
    }
  | { readonly kind: "sign"; readonly id: number; readonly digest: Uint8Array }
  | { readonly kind: "measure"; readonly inFlight: number; readonly ms: number };

export type RawReply =
  | { readonly kind: "open" }
  | { readonly kind: "signature"; readonly id: number; readonly signature: Uint8Array }
  | { readonly kind: "rate"; readonly rate: Rate };

const library = loadPkcs11js();
const free: Handle[] = [];
const waiting: ((session: Handle) => void)[] = [];
let sign: (digest: Buffer) => Promise<Uint8Array>;

process.on("message", async (request: RawRequest) => {
  if (request.kind === "open") {
    open(request);
    reply({ kind: "open" });
  } else if (request.kind === "sign") {
    reply({ kind: "signature", id: request.id, signature: await sign(Buffer.from(request.digest)) });
  } else {
    const digest = Buffer.alloc(32, 7);
    reply({ kind: "rate", rate: await rateOf(() => sign(digest), request.inFlight, request.ms) });
  }
});
process.on("disconnect", () => process.exit());

function open({ modulePath, pin, sessions, label }: Extract<RawRequest, { kind: "open" }>): void {
  const module: PKCS11 = new library.PKCS11(modulePath);
  module.C_Initialize({ flags: library.CKF_OS_LOCKING_OK });
  const [slot] = module.C_GetSlotList(true) as [Handle];
  for (let index = 0; index < sessions; index += 1) {
    free.push(module.C_OpenSession(slot, library.CKF_SERIAL_SESSION));
  }
  const first = free[0] as Handle;
  module.C_Login(first, library.CKU_USER, pin);
  module.C_FindObjectsInit(first, [
    { type: library.CKA_CLASS, value: library.CKO_PRIVATE_KEY },
    { type: library.CKA_LABEL, value: label },
  ]);
  const [key] = module.C_FindObjects(first, 1) as [Handle];
  module.C_FindObjectsFinal(first);
  const mechanism = { mechanism: library.CKM_ECDSA };
  sign = async (digest) => {
    const session = free.pop() ?? (await new Promise<Handle>((resolve) => waiting.push(resolve)));
    const output = Buffer.alloc(128);
    module.C_SignInit(session, mechanism, key);
    const signature = Uint8Array.from(await module.C_SignAsync(session, digest, output));
    const next = waiting.shift();
    if (next === undefined) free.push(session);
    else next(session);
    // Both are used here, so that neither is garbage-collected before.
    if (digest.length + output.length !== 160) throw new Error("not a digest");
    return signature;
  };
}

function reply(reply: RawReply): void {
  process.send?.(reply);
}
