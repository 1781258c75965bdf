import { KeyObject, sign } from "node:crypto";
import { parentPort } from "node:worker_threads";
import { es256FromDer } from "../../keys/crypto/der.ts";
import type { Sent } from "./sign-beside.ts";

let key: KeyObject;

// The thread of signBeside. Bytes come and go as strings of Latin-1.
parentPort?.on("message", (sent: Sent) => {
  if (sent instanceof KeyObject) {
    key = sent;
    return;
  }
  const signatures = sent.map((message) => {
    const der = sign("sha256", Buffer.from(message, "latin1"), key);
    return Buffer.from(es256FromDer(der, "a local key").buffer).toString("latin1");
  });
  parentPort?.postMessage(signatures);
});
