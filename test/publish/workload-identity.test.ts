// What docs/workload-identity.md says of key files, as it is written there.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, createPrivateKey, createPublicKey } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { SignJWT } from "jose";
import { serveFolder } from "../support/folder-server.ts";
import { runCli, temporaryFolder } from "../support/service.ts";

const page = new URL("../../docs/workload-identity.md", import.meta.url);

test(
  "a key of Kubernetes is published with the kid of its tokens, and the doctor verifies them",
  { timeout: 60_000 },
  async (t) => {
    const [folder, work] = [await temporaryFolder(t), await temporaryFolder(t)];
    const text = await readFile(page, "utf8");
    const [metadata = ""] = /(?<=```json\n)\{\n {2}"authorization_endpoint[\s\S]*?(?=```)/.exec(text) ?? [];
    await writeFile(join(work, "metadata.json"), metadata);
    const commands = ["openssl genpkey", "umask 077"].map((beginning) => {
      const block = text.split("```").find((part) => part.startsWith(`sh\n${beginning}`));
      assert.ok(block, beginning);
      return block.slice("sh\n".length).replace(/^jwksd publish .*$/m, "");
    });
    const env = { ...process.env, PATH: `${dirname(process.execPath)}:${process.env["PATH"]}` };
    await promisify(execFile)("sh", ["-ec", commands.join("\n")], { cwd: work, env });

    const server = await serveFolder(t, folder);
    const keys = ["--keys", join(work, "keys"), "--metadata", join(work, "metadata.json")];
    const published = await runCli(t, ["publish", folder, "--issuer", server.url, ...keys]);
    assert.deepEqual([published.code, published.stderr], [0, ""]);

    const key = createPrivateKey(await readFile(join(work, "sa-2026-11.key")));
    const kid = createHash("sha256")
      .update(createPublicKey(key).export({ type: "spki", format: "der" }))
      .digest("base64url");
    const token = await new SignJWT({ "kubernetes.io": { namespace: "default" } })
      .setProtectedHeader({ alg: "ES256", kid })
      .setIssuer(server.url)
      .setAudience(["sts.amazonaws.com"])
      .setSubject("system:serviceaccount:default:app")
      .setIssuedAt()
      .setNotBefore("0s")
      .setExpirationTime("1h")
      .sign(key);
    const { code, stdout } = await runCli(t, ["doctor", server.url, "--allow-insecure", "--json", "--token", token]);
    assert.equal(code, 0, stdout);
    // All members are there; that RS256 is none of them is so.
    assert.deepEqual([...new Set(stdout.match(/DISCOVERY_\w+/g))], ["DISCOVERY_RS256_MISSING"]);
  },
);
