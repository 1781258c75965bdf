import assert from "node:assert/strict";
import { execFile, fork } from "node:child_process";
import { on, once } from "node:events";
import { glob, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import packageJson from "../../package.json" with { type: "json" };
import { createProvider, localSigner } from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";

// What README.md and docs/ show is what a newcomer pastes: every TypeScript block compiles, and those of README.md and the guide run.

const root = resolve(import.meta.dirname, "../..");
const run = promisify(execFile);
const issuer = "https://login.example.com";

interface Program {
  readonly name: string;
  /** Its lines have the numbers that they have in the document. */
  readonly text: string;
}

/** A block with imports begins a program, and the blocks after it go on with it. */
function programsOf(file: string, markdown: string): Program[] {
  const programs: Program[] = [];
  for (const { 1: block = "", index } of markdown.matchAll(/^```ts\n(.*?)^```$/gms)) {
    const linesBefore = markdown.slice(0, index).split("\n").length;
    const last = /^import /m.test(block) ? undefined : programs.pop();
    const text = last?.text ?? "";
    const gap = "\n".repeat(linesBefore + 1 - text.split("\n").length);
    programs.push({
      name: last?.name ?? `${file.replaceAll("/", "-")}-${linesBefore + 1}.mts`,
      text: text + gap + block,
    });
  }
  return programs;
}

const guide = await readFile(join(root, "docs/provider.md"), "utf8");
const programs = [
  ...programsOf("README.md", await readFile(join(root, "README.md"), "utf8")),
  ...programsOf("docs/provider.md", guide),
];
const ran = new Set<string>();

/** The one program that holds a text. */
function programWith(mark: string): Program {
  const [program, ...more] = programs.filter(({ text }) => text.includes(mark));
  assert.ok(program !== undefined && more.length === 0, `not one program has ${mark}`);
  ran.add(program.name);
  return program;
}

describe("the TypeScript of the documents", () => {
  /** Where `jwksd` is the package, from its sources. */
  let folder: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "jwksd-snippets-"));
    const exports = JSON.stringify(packageJson.exports).replaceAll(/dist\/([^"]+?)(\.d\.ts|\.js)"/g, 'src/$1.ts"');
    await writeFile(join(folder, "package.json"), `{"name": "jwksd", "exports": ${exports}}`);
    for (const name of ["src", "node_modules"]) await symlink(join(root, name), join(folder, name));
  });
  after(() => rm(folder, { recursive: true }));

  async function write({ name, text }: Program): Promise<string> {
    const path = join(folder, name);
    await writeFile(path, text);
    return path;
  }

  /** Runs a program beside the check of what it sends. */
  async function during(program: Program, check: (next: () => Promise<unknown>) => Promise<void>): Promise<void> {
    const WRAPPING_KEY = Buffer.alloc(32, 7).toString("base64url");
    const child = fork(await write(program), { cwd: folder, env: { ...process.env, WRAPPING_KEY }, execArgv: [] });
    const exited = once(child, "exit");
    const messages = on(child, "message", { close: ["exit"] });
    try {
      await check(async () => {
        const { value, done } = await messages.next();
        assert.ok(done !== true, `${program.name} ended`);
        return (value as unknown[])[0];
      });
    } finally {
      child.kill();
      await exited;
    }
  }

  test("every block compiles", async () => {
    for await (const file of glob(["README.md", "docs/**/*.md"], { cwd: root })) {
      for (const program of programsOf(file, await readFile(join(root, file), "utf8"))) await write(program);
    }
    const tsconfig = { extends: join(root, "tsconfig.json"), include: ["*.mts"] };
    await writeFile(join(folder, "tsconfig.json"), JSON.stringify(tsconfig));
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    const { stdout } = await run(process.execPath, [tsc, "-p", "."], { cwd: folder }).catch(
      (error: { stdout: string }) => error,
    );
    assert.equal(stdout, "");
  });

  test("the provider serves the keys of the folder that the command before made", async () => {
    const [, command = ""] = /^npx jwksd (keygen .+)$/m.exec(guide) ?? [];
    await run(process.execPath, [join(root, "src/cli/main.ts"), ...command.split(" ")], { cwd: folder });
    const { name, text } = programWith(".listen(3001)");
    const listening = ".listen(0, () => process.send?.((server.address() as { port: number }).port))";
    await during({ name, text: text.replace(".listen(3001)", listening) }, async (next) => {
      const { keys } = (await (await fetch(`http://localhost:${Number(await next())}/jwks`)).json()) as {
        keys: object[];
      };
      assert.equal(keys.length, 1);
    });
  });

  test("the key manager makes a key, and the provider signs with it what it verifies", async () => {
    const { name, text } = programWith("createKeyManager");
    const sending = text.replace(".listen(3000)", ".listen(0)");
    await during({ name, text: `${sending}process.send?.(claims);` }, async (next) => {
      const claims = (await next()) as Record<string, unknown>;
      assert.deepEqual([claims["iss"], claims["sub"], claims["aud"]], [issuer, "alice", "my-api"]);
    });
  });

  test("the relying party takes the token of a provider", async (t) => {
    const key = { keyId: "k", signer: await localSigner(ecKey("provider")) };
    const server = createServer((request, response) => provider.node(request, response)).listen(0);
    t.after(() => server.close().closeAllConnections());
    await once(server, "listening");
    const local = `http://localhost:${(server.address() as AddressInfo).port}`;
    const provider = await createProvider({ issuer: local, keyset: [key] });
    const { name, text } = programWith("createRemoteKeySet");
    const path = await write({ name, text: text.replaceAll(issuer, local) });

    const { claimsOf } = (await import(path)) as { claimsOf: (token: string) => Promise<Record<string, unknown>> };
    const token = await provider.sign({ sub: "alice", aud: "my-api" }, { lifetimeSeconds: 60 });
    assert.equal((await claimsOf(token))["sub"], "alice");
    await assert.rejects(claimsOf(`${token.slice(0, -8)}AAAAAAAA`), { code: "ERR_JWS_SIGNATURE_VERIFICATION_FAILED" });
  });

  test("what clients sign is refused when it is no token", async () => {
    type Check = (token: string) => Promise<unknown>;
    const path = await write(programWith("createClientVerifier"));
    const checks = (await import(path)) as { authenticate: Check; readRequest: Check };
    await assert.rejects(checks.authenticate("junk"), { code: "ERR_TOKEN_MALFORMED" });
    await assert.rejects(checks.readRequest("junk"), { code: "ERR_TOKEN_MALFORMED" });
  });

  test("no program is left out", () => {
    assert.deepEqual(
      programs.map(({ name }) => name).filter((name) => !ran.has(name)),
      [],
    );
  });
});
