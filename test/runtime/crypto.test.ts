import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { builtClone } from "../support/build.ts";
import { ecKey } from "../support/keys.ts";
import { binary, bundledText } from "../support/bundle.ts";

const root = resolve(import.meta.dirname, "../..");
const run = promisify(execFile);

type Imports = { readonly imports: { readonly "#crypto": Readonly<Record<string, string>> } };

async function importsOf(manifest: string): Promise<Imports["imports"]> {
  return (JSON.parse(await readFile(join(root, manifest), "utf8")) as Imports).imports;
}

test("package.json chooses for what is built as src/package.json does for the sources", async () => {
  const ofSources = JSON.stringify(await importsOf("src/package.json"));
  const ofBuild = ofSources.replaceAll('"./', '"./dist/').replaceAll('.ts"', '.js"');
  assert.deepEqual(await importsOf("package.json"), JSON.parse(ofBuild));
});

describe("each runtime takes what is best there", () => {
  let clone: string;
  before(async () => {
    clone = await builtClone();
  });

  const runtimes: readonly (readonly [
    name: string,
    command: readonly [string, ...string[]],
    isSynchronous: boolean,
  ])[] = [
    ["Node", [process.execPath, "--input-type=module", "-e"], true],
    ["Bun", [binary("bun"), "-e"], true],
    ["Deno", [binary("deno"), "eval"], false],
  ];
  for (const [name, [program, ...args], isSynchronous] of runtimes) {
    test(`${name}: ${isSynchronous ? "node:crypto, at once" : "Web Crypto"}, from the sources and from the build`, async () => {
      const modules = [join(root, "src/keys/signer/local.ts"), join(clone, "dist/keys/signer/local.js")];
      const script = `
        for (const module of ${JSON.stringify(modules.map((module) => pathToFileURL(module)))}) {
          const { localSign, localSigner } = await import(module);
          const signer = await localSigner(${JSON.stringify(ecKey("a"))});
          await new Promise((resolve) => setTimeout(resolve, 10));
          console.log(localSign(signer)(new Uint8Array(1)) instanceof Promise);
        }
      `;
      const { stdout } = await run(program, [...args, script]);
      const isPromise = String(!isSynchronous);
      assert.deepEqual(stdout.trim().split("\n"), [isPromise, isPromise], "of the sources, and of the build");
    });
  }
});

const forBrowsers = (entry: string): Promise<string> =>
  bundledText(join(root, "src", entry), "--target", "browser", "--minify");

for (const entry of ["index.ts", "library/relying-party/index.ts", "rotation/manager/index.ts"]) {
  test(`a bundle of src/${entry} for browsers and workers has nothing of Node in it`, async () => {
    assert.doesNotMatch(await forBrowsers(entry), /\bnode:|\brequire\(/);
  });
}

test("a bundle of the key set for browsers has none of jose's tables of encryption algorithms", async () => {
  const text = await forBrowsers("library/relying-party/index.ts");
  assert.match(text, /RSASSA-PKCS1-v1_5/);
  assert.doesNotMatch(text, /PBES2|A256GCM/);
});

const vectors = join(root, "test/crypto/primitives.test.ts");
test("Bun signs and verifies as Node does", async () => {
  const { stderr } = await run(binary("bun"), ["test", vectors]);
  assert.match(stderr, /\b\d\d pass\n *0 fail\n/);
});
test("Deno verifies as Node does", async () => {
  const flags = ["--allow-read", "--allow-env", "--allow-sys", "--no-check"];
  const { stdout } = await run(binary("deno"), ["test", ...flags, vectors], { env: { ...process.env, NO_COLOR: "1" } });
  assert.match(stdout, /\b1 passed \(\d\d steps\) \| 0 failed/);
});
