// Runs the clients in docs/sign-socket.md verbatim.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { Socket } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { type JSONWebKeySet, createLocalJWKSet, jwtVerify } from "jose";
import { part, skipWithout } from "../support/parts.ts";
import { sample } from "../support/samples.ts";
import { startService, temporaryFolder } from "../support/service.ts";
import { isSoak, soak } from "../support/soak.ts";

const run = promisify(execFile);
const page = await readFile(new URL("../../docs/sign-socket.md", import.meta.url), "utf8");
const documented = "/run/jwksd/sign.sock";

interface Language {
  /** File that the page shows. The shell's client is only on the page. */
  readonly file?: string;
  /** Command that runs the client. */
  readonly command: readonly [program: string, ...args: string[]];
  /** Program that must be installed. Default: the command's program. */
  readonly needs?: string;
}

const languages: Readonly<Record<string, Language>> = {
  "a shell": { command: ["sh"], needs: "curl" },
  Python: { file: "examples/docs/sign.py", command: ["python3"] },
  PHP: { file: "examples/docs/sign.php", command: ["php"] },
  Ruby: { file: "examples/docs/sign.rb", command: ["ruby"] },
  Go: { file: "examples/docs/sign.go", command: ["go", "run"] },
  // The JDK compiles the file when it runs it. A program that runs for a second does not need the second compiler or many threads.
  Java: {
    file: "examples/docs/Sign.java",
    command: ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"],
    needs: "javac",
  },
};

describe("the client on the sign socket page signs", () => {
  const ends: (() => Promise<void>)[] = [];
  const scope = { after: (fn: () => Promise<void>) => void ends.unshift(fn) };
  let folder: string;
  let issuer: string;
  let jwks: JSONWebKeySet;

  before(async () => {
    folder = await temporaryFolder(scope);
    const service = await startService(scope, ["--data", join(folder, "data"), "--sign-socket", join(folder, "s")]);
    issuer = new URL(service.jwksUri).origin;
    jwks = (await (await fetch(service.jwksUri)).json()) as JSONWebKeySet;
  });
  after(async () => {
    for (const end of ends) await end();
  });

  async function check({ file, command: [program, ...args] }: Language) {
    const path =
      file === undefined ? await shellFile() : await sample(scope, file, { [documented]: join(folder, "s") });
    await checkRun(part(program), ...args, path);
  }

  async function shellFile(): Promise<string> {
    const blocks = [...page.matchAll(/^```sh\n([^]*?)^```$/gm)].map(([, text = ""]) => text);
    const block = blocks.find((text) => text.includes(documented) && !text.includes("jwksd serve")) ?? "";
    const path = join(folder, "sign.sh");
    await writeFile(path, block.replace(documented, join(folder, "s")));
    return path;
  }

  async function checkRun(program: string, ...args: readonly string[]) {
    const { stdout } = await run(program, args, { cwd: folder });
    const { payload } = await jwtVerify(stdout.trim(), createLocalJWKSet(jwks), { issuer, audience: "my-api" });
    assert.deepEqual([payload.sub, (payload.exp ?? 0) - (payload.iat ?? 0)], ["alice", 300]);
  }

  // Compilers take seconds, and some other programs half a second.
  for (const [name, language] of Object.entries(languages).slice(0, soak(6, 2))) {
    test(`in ${name}`, { skip: skipWithout(language.needs ?? language.command[0]) }, () => check(language));
  }

  test("in Python, after the connection has been shut down", { skip: skipWithout("python3") }, async () => {
    const path = await sample(scope, "examples/docs/sign.py", { [documented]: join(folder, "s") });
    const program = `import runpy, sys
page = runpy.run_path(sys.argv[1])
page["connection"].sock.shutdown(2)
print(page["sign"](page["request"]))`;
    const { stdout } = await run(part("python3"), ["-c", program, path]);
    assert.match(stdout, /^([\w.-]+\n){2}$/);
  });

  test("in TypeScript", async () => {
    const path = await sample(scope, "examples/docs/sign.mts", { [documented]: join(folder, "s") });
    await checkRun(process.execPath, path);
  });

  if (!isSoak) return;
  test("in Go, after the server has closed the connection", { skip: skipWithout("go") }, async (t) => {
    const socket = join(await temporaryFolder(t), "s");
    const sockets: Socket[] = [];
    const server = createServer((request, response) => {
      // At the second request, the connection is closed.
      if (sockets.push(request.socket) === 2) request.socket.destroy();
      else response.end("token");
    });
    server.listen(socket);
    await once(server, "listening");
    t.after(() => server.close());
    const twice = "func main() {\n\tsign()\n\tsign()\n}\n\nfunc sign() {";
    const path = await sample(scope, "examples/docs/sign.go", { [documented]: socket, "func main() {": twice });
    const { stdout } = await run(part("go"), ["run", path], { cwd: folder });
    assert.equal(stdout, "token\ntoken\n");
    assert.deepEqual([sockets.length, sockets[0] === sockets[1]], [3, true]);
  });
});
