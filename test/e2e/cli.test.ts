import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { open, readFile, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import * as jose from "jose";
import packageJson from "../../package.json" with { type: "json" };
import { readKeyset } from "../../src/node/index.ts";
import { flagName, settingDefinitions } from "../../src/service/config/setting-definitions.ts";
import { skipped } from "../support/parts.ts";
import {
  cliCommand,
  eventually,
  keySetText,
  runCli,
  spawnCli,
  startService,
  temporaryFolder,
  cliDone,
  cliRefused,
} from "../support/service.ts";
import { soak } from "../support/soak.ts";

const timeout = 180_000;
const settings = [...Object.keys(settingDefinitions), "config"];

describe("help", { timeout, concurrency: 4 }, () => {
  const rows = [
    { args: ["--help"], contains: ["serve", "keygen", "jwksd help serve", "--version"] },
    {
      args: ["help", "serve"],
      contains: [...settings.map(flagName), "JWKSD_PORT", "SIGHUP", "SIGTERM", "Examples:"],
    },
    { args: ["help", "keygen"], contains: ["--out", "--format", "(jwk, pem; default: jwk)", "RFC 7638", "Examples:"] },
    { args: ["--version"], contains: [`jwksd ${packageJson.version} (`, `Node.js ${process.versions.node}`, "SQLite"] },
    { args: ["keys", "list", "--help"], contains: ["--data", "--store", "(see jwksd policy)"] },
  ];
  for (const { args, contains } of rows) {
    test(args.join(" "), async (t) => {
      const { code, stdout, stderr } = await runCli(t, args);
      assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
      const text = stdout.replaceAll(/\s+/g, " ");
      assert.deepEqual(
        contains.filter((part) => !text.includes(part)),
        [],
      );
    });
  }
});

test("a command rejects serve settings that would have no effect on that command", async (t) => {
  const refused: readonly (readonly [command: string, ...flags: string[]])[] = [
    ["publish folder", "--no-cors", "--port", "--sign-socket", "--ready-without-store", "--max-saved-set-seconds"],
    ["keys list", "--signer-type", "--signers", "--rotate-every-days", "--replica-name", "--log-level"],
    ["events", "--destroy-external", "--max-stale-seconds", "--require-store"],
    ["policy", "--signer-type", "--signers"],
    ["rotate", "--rotate-every-days", "--require-store"],
    ["keys activate kid", "--signer-type", "--destroy-external"],
    ["keys remove kid", "--signer-type"],
    ["keys import file", "--signer-type", "--destroy-external"],
    ["token --aud a", "--host", "--port", "--signer-type", "--rotate-every-days"],
    ["store migrate --to sqlite:b", "--signers", "--log-level"],
  ];
  for (const [command, ...flags] of refused)
    for (const flag of flags) {
      const stderr = await cliRefused(t, [...command.split(" "), flag, "1"]);
      assert.ok(stderr.includes(`unknown option '${flag}'`), `${command} ${flag}: ${stderr}`);
    }
});

describe("rejects invalid command lines", { timeout, concurrency: 4 }, () => {
  const rows: readonly [args: readonly string[], ...says: string[]][] = [
    [["serv"], "unknown command 'serv'", "serve"],
    [["keygn"], "unknown command 'keygn'", "keygen"],
    [["serve", "--isuer", "https://op.example"], "unknown option '--isuer'", "--issuer"],
    [["serve", "--reuseport"], "unknown option '--reuseport'", "--reuse-port"],
    [["serve", "--port"], "'--port <port>' argument missing"],
    [["serve", "keys"], "too many arguments"],
    [["keygen", "--formt", "pem"], "unknown option '--formt'", "--format"],
    [["keygen", "--format", "der"], "'der' is invalid", "jwk, pem"],
    [["keygen", "--out", "package.json/key.jwk"], "package.json/key.jwk", "[ERR_FILE_UNWRITABLE]"],
    [[], "Usage: jwksd", "serve", "keygen"],
    [["keys", "remov"], "unknown command 'remov'"],
    [["keys", "remove", "a", "--forse"], "unknown option '--forse'\n(Did you mean --force?)"],
    [["keys", "remove", "--forse", "-abc"], "unknown option '--forse'\n(Did you mean --force?)"],
    [["keys", "remove", "a", "--nothing-like-it"], "unknown option '--nothing-like-it'"],
    [["keys", "remove", "a", "b"], "too many arguments; expected one kid, got 2"],
    [["keys", "remove"], "missing required argument 'kid'"],
    [["rotate", "--use", "signing"], "Allowed choices are sig, enc"],
    [["keys", "import", "x", "--state", "removed"], "Allowed choices are announced, active, retiring"],
    [["events", "--limit", "none"], "Must be a whole number, at least 1"],
    [["keys", "--keys", "x"], "unknown option '--keys'"],
  ];
  for (const [args, ...says] of rows) {
    test(`jwksd ${args.join(" ")}`, async (t) => {
      const stderr = await cliRefused(t, args);
      for (const part of says) assert.ok(stderr.includes(part), stderr);
      assert.doesNotMatch(stderr, /^\s+at /m, "a stack trace is for bugs");
    });
  }
});

describe("keygen", { timeout, concurrency: 4 }, () => {
  test("writes a private JWK, with its thumbprint as the kid, to standard output", async (t) => {
    const { code, stdout, stderr } = await runCli(t, ["keygen"]);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
    const jwk = JSON.parse(stdout) as jose.JWK_EC_Private;
    const { kid, x, y, d } = jwk;
    assert.deepEqual({ ...jwk }, { kty: "EC", crv: "P-256", x, y, d, kid, alg: "ES256", use: "sig" });
    assert.equal(kid, await jose.calculateJwkThumbprint(jwk));
    const jwt = await new jose.SignJWT({}).setProtectedHeader({ alg: "ES256" }).sign(jwk);
    const { d: _d, ...publicHalf } = jwk;
    await jose.jwtVerify(jwt, publicHalf);
  });

  test("generates a different key each time", async (t) => {
    const [one, other] = await Promise.all([runCli(t, ["keygen"]), runCli(t, ["keygen"])]);
    assert.notEqual((JSON.parse(one.stdout) as jose.JWK).kid, (JSON.parse(other.stdout) as jose.JWK).kid);
  });

  for (const format of ["jwk", "pem"]) {
    test(`writes a new file in ${format} format with mode 0600, whatever the umask, and can read it back`, async (t) => {
      const folder = await temporaryFolder(t);
      const file = join(folder, `key.${format}`);
      const umask = process.umask(0);
      const running = runCli(t, ["keygen", "--out", file, "--format", format]);
      process.umask(umask);
      const { code, stdout, stderr } = await running;
      const { entries, warnings } = await readKeyset(file);
      assert.deepEqual(
        { code, stdout, stderr, warnings, mode: (await stat(file)).mode & 0o777, files: await readdir(folder) },
        {
          code: 0,
          stdout: `wrote ${file}, kid ${entries[0]?.kid}\n`,
          stderr: "",
          warnings: [],
          mode: 0o600,
          files: [`key.${format}`],
        },
      );
    });
  }

  test("writes PKCS#8 PEM that other tools can read", async (t) => {
    const { stdout } = await runCli(t, ["keygen", "--format", "pem"]);
    const key = await jose.importPKCS8(stdout, "ES256", { extractable: true });
    assert.equal((await jose.exportJWK(key)).crv, "P-256");
  });

  test("never overwrites a file", async (t) => {
    const folder = await temporaryFolder(t);
    const file = join(folder, "key.jwk");
    await writeFile(file, "precious");
    const stderr = await cliRefused(t, ["keygen", "--out", file]);
    assert.match(stderr, /key\.jwk already exists.*\[ERR_FILE_EXISTS\]\n$/);
    assert.equal(await readFile(file, "utf8"), "precious");
    assert.deepEqual(await readdir(folder), ["key.jwk"]);
  });

  test("reports that a key could not be written to standard output", async (t) => {
    const { child, exited } = spawnCli(t, ["keygen"]);
    child.stdout.destroy();
    let errors = "";
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
    assert.deepEqual(await exited, { code: 1, signal: null });
    assert.match(errors, /^jwksd: .*EPIPE.*\[ERR_FILE_UNWRITABLE\]\n$/);
  });
});

describe("standard output that cannot be written to", { timeout, concurrency: 4 }, () => {
  const full = "/dev/full";
  // Processes of the tests share compiled code.
  const { NODE_COMPILE_CACHE = "" } = process.env;
  const compiled = NODE_COMPILE_CACHE === "" ? {} : { NODE_COMPILE_CACHE };
  const skip = skipWithoutFull();

  /** Returns why tests with a device that is always full are skipped; `false` on Linux, which has one. */
  function skipWithoutFull(): string | false {
    if (existsSync(full) || process.env["CI"]) return false;
    return skipped(`standard output on a full disk; this system has no ${full}`);
  }

  async function spawnOnFull(t: TestContext, args: readonly string[]) {
    const device = await open(full, "w");
    const [program, ...first] = cliCommand;
    const child = spawn(program, [...first, ...args], { env: compiled, stdio: ["ignore", device.fd, "pipe"] });
    t.after(() => child.kill("SIGKILL"));
    await device.close();
    let errors = "";
    child.stderr?.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
    const closed = once(child, "close").then(([code]) => ({ code: code as number | null, errors }));
    return { child, errors: () => errors, closed };
  }

  const onStore = [
    ["keys"],
    ["keys", "list", "--json"],
    ["keys", "export"],
    ["keys", "export", "first"],
    ["rotate", "--dry-run"],
    ["plan"],
    ["plan", "--json"],
    ["events"],
    ["token", "--aud", "api"],
  ];
  const withoutStore = [
    ["keygen"],
    ["verify", "nonsense", "--issuer", "http://127.0.0.1:1", "--aud", "api"],
    ["signer", "check", "nonsense:"],
    ["help", "keys"],
    ["--version"],
  ];
  // All commands share the same output code, and each test takes a process.
  const commands = [
    ...onStore.slice(0, soak(onStore.length, 1)),
    ...withoutStore.slice(0, soak(withoutStore.length, 0)),
  ];
  for (const args of commands) {
    test(`jwksd ${args.join(" ")}: fails and reports the error once`, { skip }, async (t) => {
      const flags = onStore.includes(args) ? await storeOf(t) : [];
      const { closed } = await spawnOnFull(t, [...args, ...flags]);
      const { code, errors } = await closed;
      assert.equal(code, 1);
      const messages = errors.split("\n").filter((line) => !line.startsWith("jwksd: this output is not"));
      assert.deepEqual(messages, ["jwksd: cannot write to standard output (ENOSPC) [ERR_FILE_UNWRITABLE]", ""]);
    });
  }

  test("causes no failure if the reader, such as head, closes the pipe early", async (t) => {
    const { child } = spawnCli(t, ["keys", ...(await storeOf(t))]);
    child.stdout.destroy();
    let errors = "";
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
    assert.deepEqual(await once(child, "close"), [0, null]);
    assert.doesNotMatch(errors, /\[ERR_/);
  });

  test("jwksd serve: keeps running and stops normally", { skip }, async (t) => {
    const args = ["serve", "--port", "0", "--admin", "off", ...(await storeOf(t))];
    const { child, errors, closed } = await spawnOnFull(t, args);
    await eventually("the service has started", () => errors().includes(" started "));
    child.kill("SIGTERM");
    assert.equal((await closed).code, 0, errors());
    assert.match(errors(), / stopped\n$/);
  });
});

// managed.test.ts tests the same for a store that jwksd manages.
test("never exposes a private key parameter from a key file, even if the file is rejected", { timeout }, async (t) => {
  const file = join(await temporaryFolder(t), "keys.json");
  const text = keySetText("a", "b");
  await writeFile(file, text);
  const service = await startService(t, ["--keys", file, "--log-level", "debug"]);
  for (const refused of [text.slice(0, -9), text.replace('"P-256"', '"P-384"'), text.replace('"b"', '"a"')]) {
    const from = service.log.length;
    await writeFile(file, refused);
    service.reload();
    await service.logged(({ code }) => code !== undefined, from);
  }
  await service.stop();
  const output = JSON.stringify(service.log) + service.errors();
  const secrets = (JSON.parse(text) as { keys: jose.JWK_EC_Private[] }).keys.map(({ d }) => d);
  for (const secret of secrets) assert.ok(secret.length === 43 && !output.includes(secret));
});

/** Creates a store with one key. Returns the flags that name it. */
async function storeOf(t: TestContext): Promise<string[]> {
  const folder = await temporaryFolder(t);
  const [file, data] = [join(folder, "keys.json"), join(folder, "data")];
  await writeFile(file, keySetText("first"));
  await cliDone(t, ["keys", "import", file, "--data", data]);
  return ["--data", data];
}
