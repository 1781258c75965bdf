import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join, resolve, delimiter } from "node:path";
import { before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { builtClone } from "../support/build.ts";
import { binary, bundledText } from "../support/bundle.ts";
import { ecKey } from "../support/keys.ts";

const root = resolve(import.meta.dirname, "../..");
const run = promisify(execFile);

type Imports = { readonly imports: { readonly "#crypto": Readonly<Record<string, string>> } };

async function importsOf(manifest: string): Promise<Imports["imports"]> {
  return (JSON.parse(await readFile(join(root, manifest), "utf8")) as Imports).imports;
}

test("package.json resolves #crypto for the build the same way that src/package.json does for the sources", async () => {
  const ofSources = JSON.stringify(await importsOf("src/package.json"));
  const ofBuild = ofSources.replaceAll('"./', '"./dist/').replaceAll('.ts"', '.js"');
  assert.deepEqual(await importsOf("package.json"), JSON.parse(ofBuild));
});

describe("each runtime uses its best crypto implementation", () => {
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
    test(`${name}: ${isSynchronous ? "synchronous node:crypto" : "Web Crypto"}, from the sources and from the build`, async () => {
      const modules = [join(root, "src/keys/signer/local-signer.ts"), join(clone, "dist/keys/signer/local-signer.js")];
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
      assert.deepEqual(stdout.trim().split("\n"), [isPromise, isPromise], "from the sources, and from the build");
    });
  }
});

const forBrowsers = (entry: string): Promise<string> =>
  bundledText(join(root, "src", entry), "--target", "browser", "--minify");

for (const entry of ["index.ts", "verify/relying-party/index.ts", "rotation/index.ts"]) {
  test(`a bundle of src/${entry} for browsers and workers imports no Node module`, async () => {
    assert.doesNotMatch(await forBrowsers(entry), /\bnode:|\brequire\(/);
  });
}

test("a browser bundle of the key set excludes jose's encryption algorithms", async () => {
  const text = await forBrowsers("verify/relying-party/index.ts");
  assert.match(text, /RSASSA-PKCS1-v1_5/);
  assert.doesNotMatch(text, /PBES2|A256GCM/);
});

const vectors = join(root, "test/crypto/primitives.test.ts");
test("Bun signs and verifies like Node", async () => {
  const { stderr } = await run(binary("bun"), ["test", vectors]);
  assert.match(stderr, /\b\d\d pass\n *0 fail\n/);
});
test("Deno verifies like Node", async () => {
  // Deno may have to write the tests' RSA key.
  const flags = ["--allow-read", "--allow-write", "--allow-env", "--allow-sys", "--no-check"];
  const { stdout } = await run(binary("deno"), ["test", ...flags, vectors], { env: { ...process.env, NO_COLOR: "1" } });
  assert.match(stdout, /\b1 passed \(\d\d steps\) \| 0 failed/);
});

type Json = Readonly<Record<string, unknown>>;

const examples: { file: string; typ: string; lifetimeSeconds: number; claims: Json; others: string[] }[] = [
  {
    file: "id-token.ts",
    typ: "JWT",
    lifetimeSeconds: 300,
    claims: { sub: "248289761001", aud: "s6BhdRkqt3", nonce: "n-0S6_WzA2Mj" },
    others: ["auth_time"],
  },
  {
    file: "access-token.ts",
    typ: "at+jwt",
    lifetimeSeconds: 300,
    claims: { sub: "248289761001", aud: "https://api.example", client_id: "s6BhdRkqt3", scope: "orders:read" },
    others: ["jti"],
  },
  {
    file: "jarm.ts",
    typ: "JWT",
    lifetimeSeconds: 600,
    claims: {
      aud: "s6BhdRkqt3",
      code: "PyyFaux2o7Q0YfXBU32jhw.5FXSQpvr8akv9CeRDSd0QA",
      state: "S8NJ7uqk5fY4EjNvP_G_FtyJu6pUsvH9jsYni9dMAJw",
    },
    others: [],
  },
  {
    file: "userinfo.ts",
    typ: "JWT",
    lifetimeSeconds: 60,
    claims: { sub: "248289761001", aud: "s6BhdRkqt3", name: "Jane Doe", email: "janedoe@example.com" },
    others: [],
  },
];

describe("the token examples run unchanged against a build", () => {
  let clone: string;
  // npm would take these for its own settings, and the checkout for its prefix.
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("npm_"));
  const path = [join(root, "node_modules/.bin"), process.env["PATH"]].join(delimiter);
  const sh = async (command: string): Promise<string> => {
    const env = { ...Object.fromEntries(inherited), PATH: path };
    return (await run("sh", ["-c", command], { cwd: clone, env })).stdout;
  };

  before(async () => {
    clone = await builtClone();
  });

  for (const { file, typ, lifetimeSeconds, claims, others } of examples) {
    test(file, async () => {
      const [, command] =
        /^\/\/ Run: npm run build && (.+)/.exec(await readFile(join(root, "examples/tokens", file), "utf8")) ?? [];
      assert.equal(command, `node examples/tokens/${file}`);
      const before = Math.floor(Date.now() / 1000);
      const printed = JSON.parse(await sh(command)) as { header: Json; claims: Json & { iat: number } };
      assert.deepEqual(printed.header, { alg: "ES256", kid: "2026-11", typ });
      const { iat } = printed.claims;
      assert.ok(iat >= before && iat <= Date.now() / 1000);
      const own = { iss: "https://op.example", iat, exp: iat + lifetimeSeconds };
      const varying = Object.fromEntries(others.map((name) => [name, printed.claims[name]]));
      assert.ok(!Object.values(varying).includes(undefined));
      assert.deepEqual(printed.claims, { ...claims, ...own, ...varying });
    });
  }
});
