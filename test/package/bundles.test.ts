import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { stripTypeScriptTypes } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { decodeProtectedHeader } from "jose";
import packageJson from "../../package.json" with { type: "json" };
import { textOf } from "../../scripts/samples.ts";
import { createKeyManager } from "../../src/rotation/index.ts";
import { libsqlStore } from "../../src/rotation/store/databases/libsql.ts";
import { builtClone } from "../support/build.ts";
import { binary } from "../support/bundle.ts";
import { startLibsql } from "../support/libsql.ts";
import { newWrappingKey } from "../support/managed.ts";
import { eventually } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";

// Bundles a program with all entry points with each bundler, with and without the optional peers, and runs it without installed packages.

const modules = resolve(import.meta.dirname, "../../node_modules");
const run = promisify(execFile);

const entries = Object.keys(packageJson.exports)
  .filter((path) => path !== "./package.json")
  .map((path) => path.replace(".", "jwksd"));

/** Program that reports the entry points without exports, and the errors of calls that need a peer. */
const program = `
${entries.map((entry, index) => `import * as m${index} from "${entry}";`).join("\n")}
const { createBearerGuard, openSigner, createRotatingOidcProvider } = Object.assign({}, ${entries.map((_, index) => `m${index}`).join(", ")});
const headers = { header: () => {} };
const http = { getRequest: () => ({ headers: {} }), getResponse: () => headers };
const context = { getType: () => "http", switchToHttp: () => http };
export async function answers(hasPeers) {
  const bearer = createBearerGuard({ issuer: "https://op.example", audience: "api" });
  const calls = [
    () => bearer.mcp().verifyAccessToken("no token"),
    () => bearer.nest().canActivate(context),
    ...(hasPeers ? [] : [
      () => openSigner("aws-kms:arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"),
      () => openSigner("azure-kv:https://login.vault.azure.net/keys/signing/" + "0".repeat(32)),
      () => openSigner("gcp-kms:projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"),
      () => createRotatingOidcProvider({ maxTokenLifetimeSeconds: 86_400 }, { adapter: class {} }, () => {}),
    ]),
  ];
  const failures = await Promise.allSettled(calls.map((call) => call()));
  const errors = failures.map(({ reason }) => /npm install (.*)$/.exec(reason.message)?.[1] ?? reason.errorCode ?? reason.getStatus?.() ?? reason.message);
  return { empty: [${entries.map((_, index) => `m${index}`).join(", ")}].filter((m) => Object.keys(m).length === 0).length, errors };
}`;

const expected = {
  without: [
    "@modelcontextprotocol/sdk",
    "@nestjs/common",
    "@aws-sdk/client-kms",
    "@azure/keyvault-keys",
    "@google-cloud/kms",
    "oidc-provider",
  ],
  with: ["invalid_token", 401],
} as const;
const needed = [...Object.keys(packageJson.dependencies), "next", "react", "react-dom"];
const archive = `jwksd-${packageJson.version}.tgz`;

/** Creates a project with the package, its dependencies and other packages. */
async function projectWith(packages: readonly string[], folder: string, tarball: string): Promise<void> {
  const installed = join(folder, "node_modules/jwksd");
  await mkdir(installed, { recursive: true });
  await run("tar", ["xzf", tarball, "--strip-components", "1", "-C", installed]);
  for (const name of packages) {
    await mkdir(dirname(join(folder, "node_modules", name)), { recursive: true });
    await symlink(join(modules, name), join(folder, "node_modules", name));
  }
  await writeFile(join(folder, "program.mjs"), program);
}

/** Builds a project's program in `out` and returns the path of its module. */
type Bundler = (project: string, out: string) => Promise<string>;

const bundlers: Readonly<Record<string, Bundler>> = {
  async esbuild(project, out) {
    const { build } = await import("esbuild");
    const entryPoints = [join(project, "program.mjs")];
    const outfile = join(out, "program.mjs");
    await build({ entryPoints, outfile, bundle: true, platform: "node", format: "esm", logLevel: "silent" });
    return outfile;
  },
  async rolldown(project, out) {
    const { build } = await import("rolldown");
    const output = { dir: out, entryFileNames: "program.mjs", chunkFileNames: "[name]-[hash].mjs" };
    await build({ input: join(project, "program.mjs"), platform: "node", output, logLevel: "silent" });
    return join(out, "program.mjs");
  },
  async bun(project, out) {
    await run(binary("bun"), ["build", "--target=node", join(project, "program.mjs"), `--outdir=${out}`]);
    return join(out, "program.js");
  },
  async webpack(project, out) {
    const { default: webpack } = await import("webpack");
    const output = { path: out, filename: "program.cjs", library: { type: "commonjs" } } as const;
    const compiler = webpack({ entry: join(project, "program.mjs"), mode: "none", target: "node22", output });
    const errors = await new Promise((done) => {
      compiler.run((error, stats) => done(error ?? stats?.toString({ all: false, errors: true })));
    });
    assert.equal(errors, "");
    return join(out, "program.cjs");
  },
};

let root: string;
before(async () => {
  root = await mkdtemp(join(tmpdir(), "jwksd-bundles-"));
  const tarball = join(await builtClone(), archive);
  await projectWith(needed, join(root, "without"), tarball);
  await projectWith([...needed, ...Object.keys(packageJson.peerDependencies)], join(root, "with"), tarball);
});
after(() => rm(root, { recursive: true }));

describe("all entry points in one program", () => {
  for (const peers of ["without", "with"] as const) {
    for (const [name, bundle] of Object.entries(bundlers)) {
      // npm test runs only the fastest bundler, and the cloud SDKs are large.
      if ((name !== "bun" || peers === "with") && !isSoak) continue;
      test(`work with ${name}, ${peers} the optional peers`, async () => {
        const path = await bundle(join(root, peers), join(root, "out", name, peers));
        const print = `import(${JSON.stringify(path)}).then(async (m) => console.log(JSON.stringify(await (m.answers ?? m.default.answers)(${peers === "with"}))))`;
        const { stdout } = await run(process.execPath, ["--eval", print], { cwd: dirname(path) });
        assert.deepEqual(JSON.parse(stdout), { empty: 0, errors: expected[peers] });
      });
    }

    if (!isSoak) continue;
    test(`work with Turbopack, ${peers} the optional peers`, async () => {
      const env = { HAS_PEERS: peers === "with" ? "yes" : "no" };
      const answers = await answersOfNext(join(root, peers), allEntries, "--turbopack", env, ["GET /all"]);
      assert.deepEqual(answers, [{ empty: 0, errors: expected[peers] }]);
    });
  }
});

/** Files of a Next.js application by path. */
type Files = Readonly<Record<string, string>>;

const route = (file: string): string => stripTypeScriptTypes(textOf(`examples/docs/demand-next-${file}.mts`));
const allEntries: Files = {
  "app/all/route.js": `import { answers } from "../../program.mjs";
export const dynamic = "force-dynamic";
export const GET = async () => Response.json(await answers(process.env.HAS_PEERS === "yes"));`,
};
const pageRoutes: Files = {
  "lib/provider.js": route("provider"),
  "app/jwks/route.js": route("documents"),
  "app/.well-known/openid-configuration/route.js": route("documents"),
  "app/token/route.js": route("token"),
};

/** Builds a Next.js application, with packages outside of the project, and sends it requests. Returns the JSON of each response. */
async function answersOfNext(
  project: string,
  files: Files,
  flag: string,
  env: object,
  requests: readonly string[],
): Promise<readonly unknown[]> {
  const all = {
    "package.json": '{ "type": "module" }',
    "jsconfig.json": '{ "compilerOptions": { "paths": { "@/*": ["./*"] } } }',
    "app/layout.js": "export default ({ children }) => <html><body>{children}</body></html>;",
    "next.config.mjs": 'export default { turbopack: { root: "/" }, outputFileTracingRoot: "/" };',
    ...files,
  };
  for (const [path, text] of Object.entries(all)) {
    await mkdir(dirname(join(project, path)), { recursive: true });
    await writeFile(join(project, path), text);
  }
  const next = join(modules, "next/dist/bin/next");
  const options = { cwd: project, env: { ...process.env, NEXT_TELEMETRY_DISABLED: "1" } };
  await run(process.execPath, [next, "build", flag], options);
  const address = ["--port", "0", "--hostname", "127.0.0.1"];
  const server = spawn(process.execPath, [next, "start", ...address], { ...options, env: { ...options.env, ...env } });
  try {
    let log = "";
    server.stdout.on("data", (chunk) => (log += chunk));
    const address = (): string | undefined => /http:\/\/127\.0\.0\.1:\d+/.exec(log)?.[0];
    await eventually("an address", () => address() !== undefined);
    const answers: unknown[] = [];
    for (const request of requests) {
      const [method = "", path = ""] = request.split(" ");
      answers.push(await (await fetch(`${address()}${path}`, { method })).json());
    }
    return answers;
  } finally {
    const ended = once(server, "exit");
    server.kill();
    await ended;
  }
}

if (isSoak) {
  for (const flag of ["--turbopack", "--webpack"]) {
    test(`the routes in docs/on-demand.md work when built with next build ${flag}`, async (t) => {
      const project = join(root, flag);
      await projectWith([...needed, "@libsql/client"], project, join(await builtClone(), archive));
      const env = { DATABASE_URL: await startLibsql(t), JWKSD_WRAPPING_KEYS: newWrappingKey() };
      const issuer = "https://login.example.com";
      const store = libsqlStore(env.DATABASE_URL, { issuer });
      const wrappingKeys = env.JWKSD_WRAPPING_KEYS;
      const manager = await createKeyManager({ issuer, store, wrappingKeys, onDemand: true, requireStore: false });
      await manager.runDueSteps();
      await store.close();
      const requests = ["GET /jwks", "GET /.well-known/openid-configuration", "POST /token"];
      const answers = await answersOfNext(project, pageRoutes, flag, env, requests);
      const [jwkSet, metadata, issued] = answers as [{ keys: { kid: string }[] }, object, { access_token: string }];
      const { kid } = manager.keysets.keyset[0] ?? assert.fail("no key");
      assert.deepEqual(
        jwkSet.keys.map(({ kid }) => kid),
        [kid],
      );
      assert.partialDeepStrictEqual(metadata, {
        issuer,
        jwks_uri: `${issuer}/jwks`,
        token_endpoint: `${issuer}/token`,
      });
      assert.equal(decodeProtectedHeader(issued.access_token).kid, kid);
    });
  }
}
