// The clients of docs/sign-socket.md, as they stand there.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { type JSONWebKeySet, createLocalJWKSet, jwtVerify } from "jose";
import { part, skipWithout, skipped } from "../support/parts.ts";
import { sample } from "../support/samples.ts";
import { startService, temporaryFolder } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";

const run = promisify(execFile);
const page = await readFile(new URL("../../docs/sign-socket.md", import.meta.url), "utf8");
const documented = "/run/jwksd/sign.sock";

/** By the language of its block: the program that runs it, and its file. */
const languages: Readonly<Record<string, readonly [program: string, file: string, ...args: string[]]>> = {
  sh: ["sh", "sign.sh"],
  python: ["python3", "sign.py"],
  php: ["php", "sign.php"],
  ruby: ["ruby", "sign.rb"],
};
/** Compilers, which take seconds and are not installed for these tests. */
const compiled: typeof languages = { go: ["go", "sign.go", "run"], java: ["java", "Sign.java"] };

describe("the page of sign sockets signs with", () => {
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

  async function check(language: string, [program, file, ...args]: readonly [string, string, ...string[]]) {
    const blocks = [...page.matchAll(new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\`$`, "gm"))].map(
      ([, text = ""]) => text,
    );
    const block = blocks.find((text) => text.includes(documented) && !text.includes("jwksd serve")) ?? "";
    const path = join(folder, file);
    await writeFile(path, block.replace(documented, join(folder, "s")));
    await checkRun(part(program), ...args, path);
  }

  async function checkRun(program: string, ...args: readonly string[]) {
    const { stdout } = await run(program, args, { cwd: folder });
    const { payload } = await jwtVerify(stdout.trim(), createLocalJWKSet(jwks), { issuer, audience: "my-api" });
    assert.deepEqual([payload.sub, (payload.exp ?? 0) - (payload.iat ?? 0)], ["alice", 300]);
  }

  for (const [language, how] of Object.entries(languages)) {
    test(language, { skip: skipWithout(language === "sh" ? "curl" : how[0]) }, () => check(language, how));
  }

  test("TypeScript", async () => {
    const path = await sample(scope, "examples/docs/sign.mts", { [documented]: join(folder, "s") });
    await checkRun(process.execPath, path);
  });

  for (const [language, how] of isSoak ? Object.entries(compiled) : []) {
    const skip = isInstalled(how[0]) ? false : skipped(`${how[0]} is not installed`);
    test(language, { skip }, () => check(language, how));
  }
});

function isInstalled(program: string): boolean {
  try {
    part(program);
    return true;
  } catch {
    return false;
  }
}
