// kubectl create token NAME [--audience AUDIENCE]: a token like the one of an API server with the flags in $STATE/kube-apiserver.

import { createHash, createPrivateKey, createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { SignJWT } from "jose";
import { bytesField, readFields, stringField } from "../../src/service/signing/protobuf.ts";
import { callGrpc, frame, openSession } from "../support/grpc.ts";

const { positionals, values } = parseArgs({ allowPositionals: true, options: { audience: { type: "string" } } });
const [, , name = ""] = positionals;
const lines = readFileSync(join(process.env["STATE"] ?? "", "kube-apiserver"), "utf8").split("\n");
const flag = (name: string): string =>
  lines.find((line) => line.startsWith(`--service-account-${name}=`))?.replace(/^.*?=/, "") ?? "";

const now = Math.floor(Date.now() / 1000);
const claims = {
  aud: [values.audience ?? flag("issuer")],
  exp: now + 3600,
  iat: now,
  iss: flag("issuer"),
  "kubernetes.io": { namespace: "default", serviceaccount: { name, uid: "1b4c" } },
  nbf: now,
  sub: `system:serviceaccount:default:${name}`,
};

async function askSigner(path: string): Promise<string> {
  const session = openSession({ after() {} }, path);
  const payload = Buffer.from(JSON.stringify(claims)).toString("base64url");
  const { grpc, body } = await callGrpc(session, "/v1.ExternalJWTSigner/Sign", frame(bytesField(1, payload)));
  session.destroy();
  if (grpc !== "0") throw new Error(`gRPC status ${String(grpc)}`);
  const fields = readFields(Buffer.from(body, "latin1"));
  return `${stringField(fields, 1)}.${payload}.${stringField(fields, 2)}`;
}

/** Signs a token with the kid that the API server computes. */
async function signWithKey(path: string): Promise<string> {
  const key = createPrivateKey(readFileSync(path));
  const der = createPublicKey(readFileSync(flag("key-file"))).export({ type: "spki", format: "der" });
  const kid = createHash("sha256").update(der).digest("base64url");
  return new SignJWT(claims).setProtectedHeader({ alg: "ES256", kid }).sign(key);
}

const endpoint = flag("signing-endpoint");
console.log(endpoint === "" ? await signWithKey(flag("signing-key-file")) : await askSigner(endpoint));
