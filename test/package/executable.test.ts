import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import packageJson from "../../package.json" with { type: "json" };
import { executable, folder, skipWithoutExecutable } from "../support/executable.ts";
import { temporaryFolder } from "../support/service.ts";

interface Bom {
  readonly metadata: { readonly component: { readonly hashes: readonly { readonly content: string }[] } };
  readonly components: readonly { readonly name: string }[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/** The optional peers that the command line loads. */
const optional = [
  "@aws-sdk/client-kms",
  "@azure/identity",
  "@azure/keyvault-keys",
  "@google-cloud/kms",
  "pg",
  "pkcs11js",
  "prom-client",
];
const skip = skipWithoutExecutable("its checksums and its parts");

const hash = async (file: string): Promise<string> =>
  createHash("sha256")
    .update(await readFile(join(folder, file)))
    .digest("hex");

describe("the one executable", { skip, timeout: 60_000 }, () => {
  test("has the checksums that stand beside it", async () => {
    const sums = await readFile(join(folder, "SHA256SUMS"), "utf8");
    const files = ["jwksd", "jwksd.cdx.json", "licenses.txt"];
    const lines = await Promise.all(files.map(async (file) => `${await hash(file)}  ${file}\n`));
    assert.equal(sums, lines.join(""));
    const { metadata } = JSON.parse(await readFile(join(folder, "jwksd.cdx.json"), "utf8")) as Bom;
    assert.equal(metadata.component.hashes[0]?.content, sums.slice(0, 64));
  });

  test("holds the packages that jwksd needs, and those that it may need", async () => {
    const { components, dependencies } = JSON.parse(await readFile(join(folder, "jwksd.cdx.json"), "utf8")) as Bom;
    const names = new Set(components.map(({ name }) => name));
    for (const name of ["bun", ...Object.keys(packageJson.dependencies), ...optional]) assert.ok(names.has(name), name);
    assert.ok(!names.has("typescript"));
    const refs = new Set(dependencies.map(({ ref }) => ref));
    for (const { dependsOn } of dependencies) for (const ref of dependsOn) assert.ok(refs.has(ref), ref);
    const licenses = await readFile(join(folder, "licenses.txt"), "utf8");
    for (const name of ["jose", "pg", "commander"]) assert.match(licenses, new RegExp(`^== ${name}@`, "m"));
  });

  test("reads no settings and no code from the folder in which it is started", async (t) => {
    const cwd = await temporaryFolder(t);
    await writeFile(join(cwd, ".env"), "JWKSD_UNKNOWN=1\n");
    await writeFile(join(cwd, "bunfig.toml"), 'preload = ["./preload.js"]\n');
    await writeFile(join(cwd, "preload.js"), "process.exit(9);\n");
    await writeFile(join(cwd, "tsconfig.json"), "{");
    await writeFile(join(cwd, "package.json"), "{");
    const { code, stderr } = (await promisify(execFile)(executable, ["keys"], { cwd, env: {} }).catch(
      (error: { readonly code: number; readonly stderr: string }) => error,
    )) as { readonly code?: number; readonly stderr: string };
    assert.equal(code, 1);
    assert.match(stderr, /^jwksd: there is no store at .* \[ERR_STORE_UNAVAILABLE\]\n$/);
  });
});
