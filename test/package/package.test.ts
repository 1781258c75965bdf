import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, cp, glob, mkdir, mkdtemp, readFile, realpath, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import packageJson from "../../package.json" with { type: "json" };
import { builtClone } from "../support/build.ts";
import { brokenLinks } from "../support/links.ts";
import { isSoak, soak } from "../support/soak.ts";
import { createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";

// The package as npm would publish it, installed with its dependencies and nothing else.

const root = resolve(import.meta.dirname, "../..");
const modules = join(root, "node_modules");
const entries = Object.keys(packageJson.exports)
  .filter((path) => path !== "./package.json")
  .map((path) => path.replace(".", "jwksd"));

const readme = readFile(join(root, "README.md"), "utf8");
const keySetPage = readFile(join(root, "docs/relying-party.md"), "utf8");

let project: string;
let installed: string;

/** Runs a program in the project and returns its output, whatever its exit code. */
async function run(program: string, args: readonly string[], cwd: string = project): Promise<string> {
  // jwksd rejects a JWKSD_ variable that it does not know.
  const { JWKSD_SOAK: _, ...rest } = process.env;
  const env = { ...rest, PATH: [join(modules, ".bin"), process.env["PATH"]].join(delimiter) };
  const { stdout } = await promisify(execFile)(program, args, { cwd, env }).catch(
    ({ stdout, stderr }: { stdout: string; stderr: string }) => ({ stdout: stdout + stderr }),
  );
  return stdout;
}

const runNode = (...args: readonly string[]): Promise<string> => run(process.execPath, args);

before(async () => {
  project = await mkdtemp(join(tmpdir(), "jwksd-package-"));
  const clone = await builtClone();
  installed = join(project, "node_modules/jwksd");
  await mkdir(installed, { recursive: true });
  const archive = join(clone, `jwksd-${packageJson.version}.tgz`);
  await run("tar", ["xzf", archive, "--strip-components", "1", "-C", installed]);
  for (const name of [...Object.keys(packageJson.dependencies), "@types/node"]) {
    const path = join(project, "node_modules", name);
    await mkdir(dirname(path), { recursive: true });
    await symlink(join(modules, name), path);
  }
});
after(() => rm(project, { recursive: true }));

test("on an old version of Node, the provider's quick start and the commands report which version they need", async () => {
  await copyFile(join(root, "examples/docs/provider.mjs"), join(project, "provider.mjs"));
  // Node 20 does not support either of them.
  const old = ["--no-experimental-strip-types", "--no-experimental-sqlite"];
  assert.match(
    await runNode(...old, "provider.mjs"),
    /^ConfigError: .*use Node 22\.18 or later \(npm install node@24 /m,
  );
  const version = 'data:text/javascript,Object.defineProperty(process.versions, "node", { value: "20.20.2" })';
  const command = await runNode("--import", version, join(installed, "dist/cli/main.js"), "serve");
  assert.equal(
    command,
    "jwksd: Node 22.18 or later is required, but this is Node 20.20.2; to use npx, first run: npm install node@24\n",
  );
});

test("every create function reports an old runtime instead of failing later", async () => {
  const program = `
    import { createClientVerifier, createProvider } from "jwksd";
    import { createBearerGuard } from "jwksd/bearer";
    import { createRemoteKeySet } from "jwksd/relying-party";
    import { createKeyManager } from "jwksd/rotation";
    import { createSignClient } from "jwksd/sign-client";
    import { memoryStore } from "jwksd/store";
    import { sqliteStore } from "jwksd/store/sqlite";
    const all = [createClientVerifier, createProvider, createBearerGuard, createRemoteKeySet, createKeyManager, createSignClient];
    for (const make of [...all.map((make) => () => make({})), () => memoryStore(), () => sqliteStore("none.db")])
      await Promise.resolve().then(make).catch(({ code, message }) => console.log(code, message));`;
  // Node 20 does not have this function.
  const old = "data:text/javascript,delete Promise.withResolvers";
  const lines = (await runNode("--import", old, "--input-type=module", "--eval", program)).trim().split("\n");
  const refusal = `ERR_PACKAGE_MISSING jwksd does not run on Node ${process.versions.node}; use Node 22.18 or later (npm install node@24 adds it as node_modules/.bin/node)`;
  assert.deepEqual(
    lines,
    Array.from({ length: 8 }, () => refusal),
  );
});

describe("the package contains everything that pages and help texts refer to", () => {
  test("the targets of links", async () => {
    assert.deepEqual(await brokenLinks(installed), []);
  });

  test("the pages named in commands, messages and types", async () => {
    const named = new Set<string>();
    for await (const file of glob("dist/**/*.{js,mjs,d.ts}", { cwd: installed })) {
      const text = await readFile(join(installed, file), "utf8");
      for (const [name] of text.matchAll(/(?<![\w/.-])docs\/[\w/-]+\.md/g)) named.add(name);
    }
    assert.ok(named.has("docs/signers.md"));
    assert.deepEqual(
      [...named].filter((name) => !existsSync(join(installed, name))),
      [],
    );
  });

  test("the folder of guides that the help names", async () => {
    const help = await runNode(join(installed, packageJson.bin.jwksd), "help", "serve");
    const [, folder = "no folder"] = /guides\s+are\s+in\s+(\S+)/.exec(help) ?? [];
    assert.ok(existsSync(join(folder, "signers.md")), help);
  });
});

test("all project URLs have the same base", () => {
  const { homepage, bugs, repository } = packageJson;
  assert.deepEqual([bugs, repository.url], [`${homepage}/issues`, `git+${homepage}.git`]);
});

test("without prom-client, everything except metrics is served, and /metrics names the package to install", async () => {
  await writeFile(
    join(project, "no-metrics.mjs"),
    `import { createLog } from "./node_modules/jwksd/dist/service/config/logger.js";
    import { resolveSettings } from "./node_modules/jwksd/dist/service/config/settings.js";
    import { startService } from "./node_modules/jwksd/dist/service/endpoint/service.js";
    const settings = await resolveSettings({ flags: { port: 0, admin: "127.0.0.1:0", data: "no-metrics" }, environment: {} });
    const service = await startService(settings, createLog({ logLevel: "silent", jsonLogs: false }));
    const answers = await Promise.all([service.url, service.adminUrl + "/readyz", service.adminUrl + "/metrics"].map((url) => fetch(url)));
    console.log(answers.map(({ status }) => status).join(" "), await answers[2].text());
    await service.stop();`,
  );
  const text = await runNode("no-metrics.mjs");
  assert.match(text, /^200 200 501 metrics are unavailable: .* npm install prom-client/, text);
});

test(
  "a PKCS#11 signer loads pkcs11js from the user's project, or names the missing package",
  { skip: skipWithoutPkcs11() },
  async (t) => {
    const token = await createSoftHsm(t);
    token.pkcs11Tool("--keypairgen", "--key-type", "EC:prime256v1", "--label", "k", "--id", "01");
    const signers = join(token.folder, "signers.json");
    await writeFile(
      signers,
      JSON.stringify({ pkcs11: { modulePath: token.modulePath, pin: { file: token.pinFile } } }),
    );
    const check = [join(installed, packageJson.bin.jwksd), "signer", "check", `${token.uri};object=k`, "--probes", "2"];
    assert.match(await runNode(...check, "--signers", signers), /npm install pkcs11js/);
    const path = join(project, "node_modules/pkcs11js");
    await symlink(join(modules, "pkcs11js"), path);
    t.after(() => rm(path));
    assert.match(await runNode(...check, "--signers", signers), /^ok +signatures 2, /m);
  },
);

test("the modules that run as separate processes are next to the command", () => {
  const command = join(installed, packageJson.bin.jwksd);
  for (const name of ["child.js", "parent-watch.js"]) assert.ok(existsSync(join(dirname(command), name)), name);
});

test("a command keeps its cache of compiled code in the package if it can", async () => {
  const command = join(installed, packageJson.bin.jwksd);
  const kept = join(installed, "node_modules");
  const version = (): Promise<string> =>
    run("env", ["-u", "NODE_COMPILE_CACHE", process.execPath, command, "--version"]);
  const expected = await version();
  assert.match(expected, /^jwksd \d/);
  assert.ok(existsSync(join(kept, ".cache/jwksd-compiled")));
  await rm(kept, { recursive: true });
  await writeFile(kept, "no folder");
  assert.equal(await version(), expected);
  await rm(kept);
});

describe("packages", () => {
  const command = `./node_modules/jwksd/${packageJson.bin.jwksd}`;
  /** Packages that each entry point and command loads. Others are for features that are not loaded. */
  const needJose = "bearer doctor issuers oidc-provider relying-party rotation testing testing/adapters".split(" ");
  const stores = "better-auth d1 durable-object etcd libsql mysql postgres redis sqlite".split(" ");
  const needNone = ["better-auth", "sign-client", "signer", "store", ...stores.map((name) => `store/${name}`)];
  const loads: Readonly<Record<string, readonly string[]>> = {
    jwksd: ["jose"],
    ...Object.fromEntries(needJose.map((entry) => [`jwksd/${entry}`, ["jose"]])),
    ...Object.fromEntries(needNone.map((entry) => [`jwksd/${entry}`, []])),
    "jwksd/doctor/node": ["ipaddr.js", "jose"],
    "jwksd/node": ["ipaddr.js", "jose"],
    [`${command} --version`]: ["commander"],
    [`${command} help`]: ["commander"],
    [`${command} help doctor`]: ["commander", "ipaddr.js", "jose"],
  };

  /** Packages loaded by all entry points, which one process imports one by one. */
  let loaded: Readonly<Record<string, readonly string[]>>;
  before(async () => {
    await writeFile(join(project, "loads.mjs"), loadedPackages);
    loaded = await loadedBy(entries);
  });

  async function loadedBy(what: readonly string[], ...args: readonly string[]): Promise<typeof loaded> {
    const lines = (await runNode("loads.mjs", what.join(), ...args)).trimEnd().split("\n");
    return JSON.parse(lines.at(-1) ?? "") as typeof loaded;
  }

  for (const [entry, packages] of Object.entries(loads)) {
    test(`${entry} loads ${packages.length === 0 ? "no packages" : packages.join(", ")}`, async () => {
      const [path = "", ...args] = entry.split(" ");
      const byAll = args.length === 0 ? loaded : await loadedBy([path], ...args);
      assert.deepEqual(byAll[path], packages);
    });
  }

  test("every entry point is checked", () => {
    const looked = Object.keys(loads).filter((entry) => !entry.startsWith(command));
    assert.deepEqual(looked.sort(), entries.toSorted());
  });

  test("an installation contains exactly the expected packages", async () => {
    const { packages } = JSON.parse(await readFile(join(root, "package-lock.json"), "utf8")) as {
      packages: Record<string, { readonly [flag in "dev" | "devOptional" | "optional" | "peer"]?: boolean }>;
    };
    const brought = Object.entries(packages)
      .filter(
        ([path, { dev, devOptional, optional, peer }]) => path !== "" && !(dev ?? devOptional ?? optional ?? peer),
      )
      .map(([path]) => path.replace("node_modules/", ""));
    assert.deepEqual(brought, [...new Set(Object.values(loads).flat())].toSorted());
  });
});

/** Third-party adapters and the names of the contract tests that they fail. */
const adapters: readonly (readonly [adapters: string, failing: readonly string[]])[] = [
  [
    `defineRegisterTests("ours", async () => {
      const stores = new Map();
      return { handle: async (issuer) => stores.get(issuer) ?? stores.set(issuer, memoryStore()).get(issuer) };
    });
    defineSignerTests("ours", async () => ({ signer: tinySigner("ieee-p1363"), secrets: [] }));`,
    [],
  ],
  [
    `defineRegisterTests("ours", async () => {
      const store = memoryStore();
      // It ignores versions and has one document for all issuers.
      const write = async (text) => store.write(text, (await store.read()).version);
      return { handle: async () => ({ ...store, write }) };
    });
    defineSignerTests("ours", async () => ({ signer: tinySigner("der"), secrets: [] }));`,
    [
      "a repeated or late write changes nothing",
      "creates 100 signatures of 64 bytes that jose verifies, with 64 in flight",
    ],
  ],
];

const tiny = `
import { generateKeyPairSync, sign } from "node:crypto";
import { memoryStore } from "jwksd/store";
import { defineRegisterTests, defineSignerTests } from "jwksd/testing/adapters";
function tinySigner(dsaEncoding) {
  const { publicKey, privateKey: key } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const { kty, crv, x, y } = publicKey.export({ format: "jwk" });
  const signMessage = async ({ message, digest, signal }) => {
    signal?.throwIfAborted();
    if (!(message instanceof Uint8Array) || digest?.length !== 32) throw new TypeError("message and digest are needed");
    return new Uint8Array(sign("sha256", message, { key, dsaEncoding }));
  };
  return { publicKey: Object.freeze({ kty, crv, x, y }), sign: signMessage };
}
`;

describe("jwksd/testing/adapters tests third-party signers and stores", () => {
  for (const [written, failing] of adapters) {
    test(failing.length === 0 ? "a correct adapter passes" : failing.join("; "), async () => {
      await writeFile(join(project, "adapter.test.mjs"), tiny + written);
      const node = ["-u", "NODE_TEST_CONTEXT", process.execPath, "--test-reporter=tap"];
      const output = await run("env", [...node, "adapter.test.mjs"]);
      const failed = [...output.matchAll(/^ {4}not ok \d+ - (.+)$/gm)].map(([, name]) => name);
      if (failing.length === 0) assert.deepEqual(failed, [], output);
      for (const name of failing) assert.ok(failed.includes(name), output);
      assert.ok(Number(/^# tests (\d+)$/m.exec(output)?.[1]) > 20, output);
    });
  }
});

test("an invalid call to jwksd/testing/adapters throws an explanatory error and does not register tests", async () => {
  const calls = [
    "defineSignerTests({ signer: tinySigner('der') })",
    "defineSignerTests(async () => ({}))",
    "defineSignerTests('ours', tinySigner('der'))",
    "defineSignerTests('ours', async () => ({}), { rounds: 1 })",
    "defineRegisterTests(memoryStore())",
    "defineRegisterTests('ours', memoryStore())",
  ];
  const body = calls.map(
    (call) => `try { ${call}; console.log("accepted"); } catch (error) { console.log(error.message); }`,
  );
  await writeFile(join(project, "wrong-calls.mjs"), tiny + body.join("\n"));
  const lines = (await runNode("wrong-calls.mjs")).trim().split("\n");
  assert.deepEqual(
    lines.map((line) => /^(\w+ takes a name and a function|there is no "rounds" option)/.exec(line)?.[0]),
    [
      ...[0, 1, 2].map(() => "defineSignerTests takes a name and a function"),
      'there is no "rounds" option',
      ...[0, 1].map(() => "defineRegisterTests takes a name and a function"),
    ],
  );
  // The function's result is known only when the tests run.
  await writeFile(
    join(project, "adapter.test.mjs"),
    `${tiny}defineSignerTests("ours", async () => tinySigner("der"));`,
  );
  assert.match(await runNode("adapter.test.mjs"), /must return \{ signer, secrets \}/);
});

/** Returns the size of a minified and gzipped bundle with jose's `jwtVerify`, in kB. */
async function bundleSize(name: string, from: string): Promise<number> {
  await writeFile(join(project, "bundle.mjs"), `export { ${name} } from "${from}"; export { jwtVerify } from "jose";`);
  await run("bun", ["build", "--minify", "--target=browser", "--outfile=bundle.js", "bundle.mjs"]);
  return gzipSync(await readFile(join(project, "bundle.js"))).length / 1000;
}

describe("the sizes on the pages are correct", () => {
  test("for the installed packages", async () => {
    const [, count, megabytes] = /npm installs (\w+) packages, about (\d) MB/.exec(await readme) ?? [];
    const packages = ["jwksd", ...Object.keys(packageJson.dependencies)];
    assert.equal(count, ["none", "one", "two", "three", "four", "five"][packages.length]);
    let bytes = 0;
    for (const name of packages) {
      const folder = await realpath(join(project, "node_modules", name));
      for await (const file of glob("**/*.*", { cwd: folder })) bytes += (await stat(join(folder, file))).size;
    }
    assert.ok(Math.abs(bytes / 1e6 - Number(megabytes)) < 0.5, `${bytes} bytes`);
  });

  test("for a relying party's bundle", async () => {
    const [, ours, joses] =
      /is\s(\d+) kB,\sminified\sand\sgzipped; with\s[^.]+, it\sis\s(\d+) kB/.exec(await keySetPage) ?? [];
    const sizes = [
      { stated: ours, measured: await bundleSize("createRemoteKeySet", "jwksd/relying-party") },
      { stated: joses, measured: await bundleSize("createRemoteJWKSet", "jose") },
    ];
    for (const { stated, measured } of sizes)
      assert.ok(Math.abs(measured - Number(stated)) < 1, `${measured} kB, but docs/relying-party.md states ${stated}`);
  });
});

/** Program that imports modules one by one and prints the packages that each loads, in alphabetical order. */
const loadedPackages = `
import { registerHooks } from "node:module";
const [, , list, ...args] = process.argv;
const entries = list.split(",");
process.argv = [process.execPath, entries[0], ...args];
const imports = new Map();
registerHooks({
  resolve(specifier, context, next) {
    const resolved = next(specifier, context);
    if (!imports.has(context.parentURL)) imports.set(context.parentURL, new Set());
    imports.get(context.parentURL).add(resolved.url);
    return resolved;
  },
});
const loaded = {};
for (const entry of entries) {
  await import(entry);
  const urls = new Set([import.meta.resolve(entry)]);
  for (const url of urls) for (const imported of imports.get(url) ?? []) urls.add(imported);
  const names = Array.from(urls, (url) => /.*\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)\\//.exec(url)?.[1] ?? "jwksd");
  loaded[entry] = [...new Set(names)].filter((name) => name !== "jwksd").sort();
}
console.log(JSON.stringify(loaded));
`;

// The declarations are checked too, because skipLibCheck is off.
describe("types", () => {
  const importAll = entries.map((entry, index) => `import * as m${index} from "${entry}";`).join("\n");
  const requireAll = entries.map((entry, index) => `import m${index} = require("${entry}");`).join("\n");
  const use = `\nexport default [${entries.map((_, index) => `m${index}`).join(", ")}];\n`;

  before(async () => {
    await writeFile(join(project, "module.mts"), importAll + use);
    await writeFile(join(project, "require.cts"), requireAll + use.replace("export default", "export ="));
    await writeFile(join(project, "import.cts"), 'export = async () => [await import("jwksd")];');
  });

  const dom = { lib: ["es2022", "dom"], types: [] };
  const node = { types: ["node"] };
  const strictest = {
    module: "nodenext",
    target: "es2022",
    skipDefaultLibCheck: true,
    strict: true,
    exactOptionalPropertyTypes: true,
    noFallthroughCasesInSwitch: true,
    noImplicitOverride: true,
    noImplicitReturns: true,
    noPropertyAccessFromIndexSignature: true,
    noUncheckedIndexedAccess: true,
    noUnusedLocals: true,
    noUnusedParameters: true,
    verbatimModuleSyntax: true,
    isolatedModules: true,
    declaration: true,
  };
  // The fastest compiler is first, because npm test runs only the first one.
  const compilations = [
    ["typescript", "@types/node", node, ["module.mts", "import.cts", "require.cts"]],
    ["typescript-5.5", "lib dom", dom, ["module.mts", "import.cts"]],
    // TypeScript 5.9 stands for the 5.8 that docs and README.md name.
    ["typescript-5.9", "lib dom", dom, ["module.mts", "import.cts", "require.cts"]],
  ] as const;
  for (const [compiler, what, options, files] of compilations.slice(0, soak(compilations.length, 1))) {
    test(`${compiler} with ${what} compiles ${files.join(", ")}`, async () => {
      const compilerOptions = {
        module: "nodenext",
        target: "es2022",
        strict: true,
        skipDefaultLibCheck: true,
        ...options,
      };
      await writeFile(join(project, "tsconfig.json"), JSON.stringify({ files, compilerOptions }));
      assert.equal(await runNode(join(modules, compiler, "bin/tsc"), "--noEmit"), "");
    });
  }

  // All of TypeScript's strict checks, for programs that extend jwksd and for the declarations that they use.
  test("the extension points compile with the strictest settings of each compiler", async () => {
    const folder = join(project, "test/package/extensions");
    await cp(join(import.meta.dirname, "extensions"), folder, { recursive: true });
    await cp(join(installed, "examples/docs/store-own.mts"), join(project, "examples/docs/store-own.mts"));
    const include = ["*.mts"];
    const found = await Promise.all(
      compilations.map(async ([compiler, , options]) => {
        const config = join(folder, `${compiler}.json`);
        await writeFile(config, JSON.stringify({ include, compilerOptions: { ...strictest, ...options } }));
        return runNode(join(modules, compiler, "bin/tsc"), "--noEmit", "-p", config);
      }),
    );
    assert.deepEqual(
      found,
      compilations.map(() => ""),
    );
  });

  test("require() returns every entry point's exports", async () => {
    await writeFile(
      join(project, "require.cjs"),
      requireAll.replaceAll("import m", "const m") + use.replace("export default", "module.exports ="),
    );
    assert.equal(await runNode("require.cjs"), "");
  });

  // Last, because this installs frameworks next to the package. The declarations of two peers contradict each other.
  for (const [files, pattern, module, moduleResolution] of [
    [["mcp.mts", "unguarded.mts"], "guard*.{mjs,mts}", "node16", "node16"],
    [["mcp.mts", "unguarded.mts"], "guard*.{mjs,mts}", "esnext", "bundler"],
    [["oauth2-jwt-bearer.mts"], "none", "node16", "node16"],
  ] as const) {
    if (!isSoak) continue;
    test(`the guard's types compile with module resolution ${moduleResolution}, the frameworks' types and ${files[0]}`, async () => {
      const frameworks = ["express", "@types/express", "fastify", "hono", "@nestjs/common", "next", "h3", "elysia"];
      const others = ["@trpc/server", "@modelcontextprotocol/sdk", "express-oauth2-jwt-bearer"];
      for (const name of [...frameworks, ...others]) {
        const path = join(project, "node_modules", name);
        await mkdir(dirname(path), { recursive: true });
        if (!existsSync(path)) await symlink(join(modules, name), path);
      }
      const samples: string[] = [];
      for await (const file of glob(pattern, { cwd: join(installed, "examples/docs") })) {
        samples.push(file);
        const text = await readFile(join(installed, "examples/docs", file), "utf8");
        assert.doesNotMatch(text, / as (?!const)\w/, `${file} has a cast`);
        await writeFile(join(project, file), text);
      }
      for (const file of files) await copyFile(join(import.meta.dirname, "guarded", file), join(project, file));
      await writeFile(join(project, "next.mts"), samples.length === 0 ? "" : inNext);
      const compilerOptions = {
        ...strictest,
        module,
        moduleResolution,
        checkJs: true,
        experimentalDecorators: true,
        types: ["node"],
        // The samples are programs, not libraries: h3's type of an application cannot be named.
        declaration: false,
        // Elysia's own declarations contain errors.
        skipLibCheck: true,
      };
      const config = { files: [...files, ...samples, "next.mts"], compilerOptions };
      await writeFile(join(project, "tsconfig.json"), JSON.stringify(config));
      for (const [compiler] of compilations)
        assert.equal(await runNode(join(modules, compiler, "bin/tsc"), "--noEmit"), "", compiler);
    });
  }
});

const inNext = `import type { NextProxy, ProxyConfig } from "next/server.js";
import { config, proxy } from "./guard-next.mjs";
export const typed: readonly [NextProxy, ProxyConfig] = [proxy, config];`;
