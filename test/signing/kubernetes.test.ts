// The external signer for Kubernetes, called through Python's gRPC, which has its own implementation of HTTP/2 and Protocol Buffers.

import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { createHash, createPublicKey, verify } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { copyFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { SignerError } from "../../src/base/errors.ts";
import type { Signing } from "../../src/service/signing/handler.ts";
import { createKubernetesSigner } from "../../src/service/signing/kubernetes.ts";
import { createAudit } from "../../src/service/signing/signature-counts.ts";
import { ecKey, rsaKey } from "../support/keys.ts";
import { skipWithout, skipped } from "../support/parts.ts";
import { type RunningService, startService, temporaryFolder } from "../support/service.ts";

// Only Debian's Python finds Debian's packages.
const python = existsSync("/usr/bin/python3") ? "/usr/bin/python3" : "python3";
const findsGrpc =
  "from importlib.util import find_spec; exit(not (find_spec('grpc') and find_spec('google.protobuf')))";
const hasGrpc = spawnSync(python, ["-c", findsGrpc]).status === 0 || process.env["CI"];
const skip = skipWithout("protoc") || (hasGrpc ? false : skipped("Python has no grpcio; install python3-grpcio"));

const issuer = "https://kubernetes.default.svc";
const file = (name: string): string => join(import.meta.dirname, name);
const encode = (claims: unknown): string =>
  Buffer.from(typeof claims === "string" ? claims : JSON.stringify(claims)).toString("base64url");

interface Reply {
  readonly code?: string;
  readonly details?: string;
  readonly header: string;
  readonly signature: string;
  readonly keys: readonly { keyId: string; key: string; excludeFromOidcDiscovery?: boolean }[];
  readonly dataTimestamp: { readonly seconds: string };
  readonly refreshHintSeconds: string;
  readonly maxTokenExpirationSeconds: string;
}

/** Returns claims as the API server composes them. */
function claimsFor(more: object = {}): object {
  const now = Math.floor(Date.now() / 1000);
  return {
    aud: [issuer],
    exp: now + 3607,
    iat: now,
    iss: issuer,
    jti: "e8d1a6b2-0c50-4a3f-8f0e-1f3c1f0f2a11",
    "kubernetes.io": {
      namespace: "default",
      pod: { name: "web-0", uid: "7f0d" },
      serviceaccount: { name: "web.site", uid: "1b4c" },
      warnafter: now + 3000,
    },
    nbf: now,
    sub: "system:serviceaccount:default:web.site",
    ...more,
  };
}

/** Claims that are refused, with the error code. */
const refusalsAt = (now: number): Readonly<Record<string, readonly [claims: string, code: string]>> => ({
  "an empty string": ["", "INVALID_ARGUMENT"],
  "a string that is not base64url": ["{}", "INVALID_ARGUMENT"],
  "padded base64url": [`${encode("{}")}=`, "INVALID_ARGUMENT"],
  "a string that is not JSON": [encode("claims"), "INVALID_ARGUMENT"],
  "an array": [encode([]), "INVALID_ARGUMENT"],
  "a header and a payload": [`${encode("{}")}.${encode(claimsFor())}`, "INVALID_ARGUMENT"],
  "a duplicate member": [
    encode(JSON.stringify(claimsFor()).replace("{", '{"iss":"https://evil.example",')),
    "INVALID_ARGUMENT",
  ],
  "an expiry that some parsers read as another member": [encode(claimsFor({ EXP: now + 1e9 })), "INVALID_ARGUMENT"],
  "a subject that some parsers read as another member": [
    encode(claimsFor({ "\u017fub": "alice" })),
    "INVALID_ARGUMENT",
  ],
  "deep nesting": [
    encode(JSON.stringify(claimsFor()).replace("{", `{"x":${"[".repeat(9_000)}${"]".repeat(9_000)},`)),
    "INVALID_ARGUMENT",
  ],
  "another issuer": [encode(claimsFor({ iss: "https://evil.example" })), "PERMISSION_DENIED"],
  "a user as the subject": [encode(claimsFor({ sub: "alice" })), "PERMISSION_DENIED"],
  "a user that looks like a service account": [
    encode(claimsFor({ sub: "x\nsystem:serviceaccount:a:b" })),
    "PERMISSION_DENIED",
  ],
  "a service account name with capitals": [
    encode(claimsFor({ sub: "system:serviceaccount:a:B" })),
    "PERMISSION_DENIED",
  ],
  "no audience": [encode(claimsFor({ aud: [] })), "INVALID_ARGUMENT"],
  "a lifetime beyond the policy": [encode(claimsFor({ exp: now + 7300 })), "PERMISSION_DENIED"],
  "a token without an expiry": [encode(claimsFor({ exp: undefined })), "INVALID_ARGUMENT"],
  "an expired token": [encode(claimsFor({ exp: now - 1 })), "INVALID_ARGUMENT"],
  "a token issued in the past": [encode(claimsFor({ iat: now - 3600, nbf: now - 3600 })), "INVALID_ARGUMENT"],
  "a token not valid yet": [encode(claimsFor({ nbf: now + 3600 })), "INVALID_ARGUMENT"],
  "claims too large for a token": [encode(claimsFor({ x: "x".repeat(20_000) })), "INVALID_ARGUMENT"],
  "a message that is too long": [encode(claimsFor({ x: "x".repeat(70_000) })), "RESOURCE_EXHAUSTED"],
});

type Call = (method: string, request?: object, seconds?: number) => Promise<Reply>;
type Scope = Parameters<typeof temporaryFolder>[0];

/** Returns a function that calls a socket through Python's gRPC. */
async function grpcClientFor(scope: Scope, socket: string): Promise<Call> {
  const folder = await temporaryFolder(scope);
  await copyFile(file("external-jwt-signer.proto"), join(folder, "external_jwt_signer.proto"));
  execFileSync("protoc", [`--proto_path=${folder}`, `--python_out=${folder}`, "external_jwt_signer.proto"]);
  const child = spawn(python, [file("grpc_client.py"), folder, socket], { stdio: ["pipe", "pipe", "inherit"] });
  scope.after(async () => void child.kill());
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return async (method, request = {}, seconds = 10) => {
    child.stdin.write(`${JSON.stringify([method, request, seconds])}\n`);
    const { value } = (await lines.next()) as { value: string };
    return JSON.parse(value) as Reply;
  };
}

describe("the external signer for Kubernetes", { skip }, () => {
  const ends: (() => Promise<void>)[] = [];
  const scope = { after: (fn: () => Promise<void>) => void ends.unshift(fn) };
  const former = [
    createPublicKey({ key: rsaKey(), format: "jwk" }),
    createPublicKey({ key: ecKey("former"), format: "jwk" }),
  ];
  let service: RunningService;
  let call: Call;

  before(async () => {
    const folder = await temporaryFolder(scope);
    const [socket, sockets, pub] = [join(folder, "s"), join(folder, "sockets.json"), join(folder, "sa.pub")];
    await writeFile(pub, former.map((key) => key.export({ type: "spki", format: "pem" })).join(""));
    const members = { protocol: "kubernetes", maxLifetimeSeconds: 7200, formerKeys: [pub] };
    await writeFile(sockets, JSON.stringify({ [socket]: members }));
    const args = ["--issuer", issuer, "--data", join(folder, "data"), "--max-token-lifetime-seconds", "86400"];
    service = await startService(scope, [...args, "--sign-config", sockets]);
    call = await grpcClientFor(scope, socket);
  });
  after(async () => {
    for (const end of ends) await end();
  });

  test("signs the claims of a service account unchanged, with a key that FetchKeys returns", async () => {
    const claims = encode(claimsFor());
    const { header, signature } = await call("Sign", { claims });
    const { alg, kid, typ, ...more } = JSON.parse(Buffer.from(header, "base64url").toString()) as Record<
      string,
      string
    >;
    assert.deepEqual([alg, typ, more], ["ES256", "JWT", {}]);
    const { keys, dataTimestamp, refreshHintSeconds } = await call("FetchKeys");
    const [own, ...old] = keys;
    assert.deepEqual([own?.keyId, own?.excludeFromOidcDiscovery ?? false], [kid, false]);
    const key = createPublicKey({ key: Buffer.from(own?.key ?? "", "base64"), format: "der", type: "spki" });
    const signed = Buffer.from(`${header}.${claims}`);
    const options = { key, dsaEncoding: "ieee-p1363" } as const;
    assert.ok(verify("sha256", signed, options, Buffer.from(signature, "base64url")));
    assert.ok(Number(refreshHintSeconds) > 0);
    assert.ok(Math.abs(Number(dataTimestamp.seconds) - Date.now() / 1000) < 60);
    // As the API server computes a key's kid.
    const expected = former.map((key) => {
      const spki = key.export({ type: "spki", format: "der" });
      const keyId = createHash("sha256").update(spki).digest("base64url");
      return { keyId, key: spki.toString("base64"), excludeFromOidcDiscovery: true };
    });
    assert.deepEqual(old, expected);
    const published = (await (await fetch(`http://127.0.0.1:${service.port}/jwks`)).json()) as {
      keys: { kid: string }[];
    };
    assert.deepEqual(
      published.keys.map(({ kid }) => kid),
      [kid],
    );
  });

  test("returns the maximum token lifetime", async () => {
    assert.deepEqual(await call("Metadata"), { maxTokenExpirationSeconds: "7200" });
  });

  describe("refuses to sign", () => {
    for (const name of Object.keys(refusalsAt(0))) {
      test(name, async () => {
        const [claims, code] = refusalsAt(Math.floor(Date.now() / 1000))[name] ?? [];
        const reply = await call("Sign", { claims });
        assert.deepEqual([reply.code, reply.header], [code, undefined], reply.details);
      });
    }
  });

  test("rejects unknown methods and keeps signing afterward", async () => {
    assert.equal((await call("Unknown")).code, "UNIMPLEMENTED");
    assert.ok((await call("Sign", { claims: encode(claimsFor({ aud: "one" })) })).signature);
  });

  test("a caller can retry after giving up at its own deadline", async () => {
    // The deadline is in the past, because a reply can be faster than the caller's timer.
    assert.equal((await call("FetchKeys", {}, -1)).code, "DEADLINE_EXCEEDED");
    assert.equal((await call("FetchKeys")).keys.length, 3);
  });

  test("logs how many tokens it signed", async () => {
    await service.stop();
    const line = await service.logged(({ msg }) => msg === "tokens signed");
    assert.equal(line["signed"], 2);
    assert.equal((await call("Sign", { claims: encode(claimsFor()) })).code, "UNAVAILABLE");
  });
});

const refuse = (): never => {
  throw new SignerError("ERR_SIGNER_STALE", "it is stale");
};

test(
  "if signing is not allowed or there is no key yet, returns an error that makes Kubernetes retry",
  { skip },
  async (t) => {
    const path = join(await temporaryFolder(t), "s");
    const signing: Signing = {
      sign: async () => refuse(),
      signPayload: async () => refuse(),
      checkMaySign: refuse,
      signingRecords: () => [],
      source: { takenAt: 0, maxTokenLifetimeSeconds: 3600 },
    };
    const audit = createAudit(systemClock, () => {});
    const sign = { signing, policy: {}, audit };
    const options = { issuer, formerKeys: [], clock: systemClock };
    const { server, stop } = createKubernetesSigner(sign, options);
    server.listen(path);
    await once(server, "listening");
    t.after(async () => {
      await stop();
      audit.end();
    });
    const call = await grpcClientFor(t, path);
    const refused = await call("Sign", { claims: encode(claimsFor({ exp: Math.floor(Date.now() / 1000) + 60 })) });
    assert.deepEqual([refused.code, refused.details], ["UNAVAILABLE", "ERR_SIGNER_STALE: it is stale"]);
    assert.equal((await call("FetchKeys")).code, "UNAVAILABLE");
    assert.deepEqual(await call("Metadata"), { maxTokenExpirationSeconds: "3600" });
  },
);
