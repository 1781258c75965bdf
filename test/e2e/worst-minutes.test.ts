import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdir, readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { calculateJwkThumbprint } from "jose";
import { listening } from "../support/listening.ts";
import { getOnce, kidsIn } from "../support/load.ts";
import { newWrappingKey } from "../support/managed.ts";
import { mounted, skipWithoutMounts, toReadOnly } from "../support/namespaces.ts";
import { startWithAdmin } from "../support/scrape.ts";
import {
  cliCommand,
  eventually,
  runCli,
  startService,
  temporaryFolder,
  withoutSettings,
  freePort,
  cliDone,
  cliRefused,
} from "../support/service.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";

// If the service cannot start, it reports why before it has changed anything.

const skip = skipWithoutMounts("a read-only disk");
const issuer = ["--issuer", "https://login.example.com"];
const isWarning = ({ level, msg }: { level: number; msg: string }): boolean =>
  level === 40 && msg.includes("had no keys");

async function dataOf(t: TestContext): Promise<string> {
  return join(await temporaryFolder(t), "data");
}

/** Starts the service, which must refuse. Returns standard error. */
async function refused(t: TestContext, args: readonly string[], env = {}): Promise<string> {
  const stderr = await cliRefused(t, ["serve", "--port", "0", "--admin", "off", ...args], env);
  return stderr;
}

const filesIn = (folder: string): Promise<string[]> => readdir(folder).catch(() => []);

describe("a store without keys", () => {
  test("causes a detailed warning only the first time a service starts with an issuer, not on the next start or without an issuer", async (t) => {
    const data = await dataOf(t);
    const first = await startService(t, ["--data", data, ...issuer]);
    const { msg = "" } = first.log.find(isWarning) ?? {};
    assert.match(
      msg,
      new RegExp(`the store in --data ${data} had no keys for https:\\S+, so .*first start.*--require-store`),
    );
    assert.match(
      msg,
      /every verifier that fetches this set rejects the tokens.*stop this process, correct --data or --issuer/,
    );
    await first.stop();
    const again = await startService(t, ["--data", data, ...issuer]);
    const withoutIssuer = await startService(t, ["--data", await dataOf(t)]);
    for (const { log } of [again, withoutIssuer]) assert.ok(!log.some(isWarning));
  });

  test("is refused with --require-store before anything is created", async (t) => {
    const data = await dataOf(t);
    const key = { JWKSD_WRAPPING_KEYS: newWrappingKey() };
    const says =
      /--data \S+ has no keys for https:\S+?(?:, because the folder \S+ does not exist)?\. Nothing was created, because --require-store .* is set\. .*\[ERR_STORE_EMPTY\]/;
    const mistyped = await refused(t, ["--data", data, ...issuer, "--require-store"], key);
    assert.match(mistyped, says);
    assert.ok(mistyped.includes(`because the folder ${data} does not exist.`), mistyped);
    assert.deepEqual(await filesIn(data), []);
    // A file that another start created before it could generate a key.
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, "keys.db"), "");
    assert.match(await refused(t, ["--data", folder, ...issuer], { JWKSD_REQUIRE_STORE: "true" }), says);
    assert.deepEqual(
      (await filesIn(folder)).filter((name) => name.startsWith("wrapping")),
      [],
    );
  });

  test("does not block the first start with an issuer if the folder is left over from a trial run without an issuer", async (t) => {
    const data = await dataOf(t);
    await (await startService(t, ["--data", data])).stop();
    const { log } = await startService(t, ["--store", `sqlite:${join(data, "own.db")}`, ...issuer]);
    assert.ok(log.some(({ msg }) => msg === "key activated"));
  });

  test("is recognized as lost if the issuer has a saved set, so no keys are generated, even without --require-store", async (t) => {
    const data = await dataOf(t);
    const off = ["--max-saved-set-seconds", "0"];
    await (await startService(t, ["--data", data, ...issuer])).stop();
    const file = join(data, "saved-set.json");
    const saved = await readFile(file, "utf8");
    await rm(join(data, "keys.db"));
    const says = new RegExp(
      `--data ${data} has no keys for https:\\S+\\. Nothing was created, because ${file} is the saved set of a service .*"A lost store" in docs.*\\[ERR_STORE_EMPTY\\]`,
    );
    // The wrapping key may also be lost, and the file may be damaged.
    const other = { JWKSD_WRAPPING_KEYS: newWrappingKey() };
    assert.match(await refused(t, ["--data", data, ...issuer, ...off]), says);
    assert.match(await refused(t, ["--data", data, ...issuer], other), says);
    await writeFile(file, saved.slice(0, 20));
    assert.match(await refused(t, ["--data", data, ...issuer]), says);
    assert.deepEqual((await filesIn(data)).toSorted(), ["saved-set.json", "wrapping.key"]);
    await writeFile(file, saved);
    await (await startService(t, ["--data", data, "--issuer", "https://other.example.com"])).stop();
  });

  test("gets no new keys from a service that runs on the saved set, even after the set is deleted", async (t) => {
    const data = await dataOf(t);
    await (await startService(t, ["--data", data, ...issuer])).stop();
    await rm(join(data, "keys.db"));
    const service = await startService(t, ["--data", data, ...issuer]);
    await rm(join(data, "saved-set.json"));
    await service.logged(({ msg }) => msg.startsWith("keys cannot be managed: "));
    assert.ok(!(await filesIn(data)).includes("keys.db"));
    await service.stop();
    await (await startService(t, ["--data", data, ...issuer])).stop();
  });

  test("with --require-store, is replaced by the saved set until the real store is back", async (t) => {
    const data = await dataOf(t);
    const first = await startService(t, ["--data", data, ...issuer]);
    const kids = kidsIn(await getOnce(first.port));
    await first.stop();
    const path = join(data, "keys.db");
    await rename(path, `${path}-gone`);
    const start = (...args: readonly string[]) =>
      startWithAdmin(t, "--data", data, ...issuer, "--require-store", ...args);
    const { service, ready } = await start();
    const reply = await getOnce(service.port);
    assert.deepEqual(kidsIn(reply), kids);
    assert.equal(reply.headers["cache-control"], "public, max-age=300, must-revalidate");
    assert.equal(service.stateText, "from the saved set; nothing is signed until the store is back");
    assert.ok(service.log.some(({ level, code }) => level === 50 && code === "ERR_STORE_EMPTY"));
    assert.ok(service.log.some(({ msg }) => msg.startsWith("the saved set is published")));
    assert.ok(!(await filesIn(data)).includes("keys.db"));
    const says =
      /^503 not ready: the store has not been reached since startup; the published set is from \d{4}-.* UTC\n$/;
    assert.match(await ready(), says);
    const other = await start("--ready-without-store");
    assert.equal(await other.ready(), "200 ok\n");
    assert.equal(await other.service.stop(), 0, "while it waits for the store");
    await rename(`${path}-gone`, path);
    await service.logged(({ msg }) => msg === "the store is back and its keys are published");
    await eventually("it is ready", async () => (await ready()).startsWith("200"));
  });
});

test("if the saved set cannot be written, the service warns but still starts", async (t) => {
  const data = await dataOf(t);
  await (await startService(t, ["--data", data, ...issuer])).stop();
  const file = join(data, "saved-set.json");
  await rm(file);
  await mkdir(file);
  const { log } = await startService(t, ["--data", data, ...issuer]);
  const says =
    "cannot save the set that would be published if the store were unavailable at startup (--data, --max-saved-set-seconds): ";
  const [line, ...more] = log.filter(({ level }) => level === 40);
  assert.deepEqual([line?.["file"], line?.code, more], [file, "EISDIR", []]);
  assert.ok(line?.msg.startsWith(says), line?.msg);
});

describe("a port in use", () => {
  for (const setting of ["--port", "--admin"]) {
    test(`${setting}: the message names the setting, and no keys are generated`, async (t) => {
      const port = await listening(t, createServer());
      const data = await dataOf(t);
      const address = setting === "--port" ? String(port) : `127.0.0.1:${port}`;
      const stderr = await refused(t, ["--data", data, setting, address]);
      assert.match(
        stderr,
        new RegExp(
          `${port}: it is in use by another process or by another setting of this process; choose another port with ${setting} `,
        ),
      );
      assert.deepEqual(await filesIn(data), []);
    });
  }

  for (const host of ["127.0.0.1", "0.0.0.0", "::1"]) {
    test(`${host}: the message is the same if another setting of the same process uses the port`, async (t) => {
      const data = await dataOf(t);
      const port = String(await freePort(host));
      const admin = host === "::1" ? `[::1]:${port}` : `127.0.0.1:${port}`;
      const stderr = await refused(t, ["--data", data, "--host", host, "--port", port, "--admin", admin]);
      assert.match(
        stderr,
        new RegExp(
          `${port}: it is in use by another process or by another setting of this process; choose another port with --admin `,
        ),
      );
      assert.deepEqual(await filesIn(data), []);
    });
  }
});

test("names a lost wrapping key's id, the ids of the given keys, and the next step", async (t) => {
  const folder = await temporaryFolder(t);
  const [own, other] = [newWrappingKey(), newWrappingKey()];
  const otherFile = join(folder, "other");
  await writeFile(otherFile, other, { mode: 0o600 });
  const data = join(folder, "data");
  await (await startService(t, ["--data", data], { JWKSD_WRAPPING_KEYS: own })).stop();
  const stderr = await refused(t, ["--data", data, "--wrapping-key-file", otherFile]);
  const [id, otherId] = await Promise.all([own, other].map((k) => calculateJwkThumbprint({ kty: "oct", k })));
  assert.ok(stderr.includes(`with the wrapping key "${id}", which was not given (given: ${otherId})`), stderr);
  assert.match(stderr, /add it to --wrapping-key-file.*"A lost wrapping key" in docs/);
  // Without the file, read-only commands work; all of them name the key that the store needs.
  const gone = [
    "--data",
    data,
    "--wrapping-key-file",
    join(folder, "a-name-as-long-as-that-of-a-key-may-be-in-production"),
  ];
  for (const [args, exit] of [
    [["--data", data], 0],
    [gone, 1],
  ] as const) {
    for (const command of ["keys", "plan", "replicas"]) {
      const { code, stdout, stderr } = await runCli(t, [command, ...args]);
      assert.deepEqual([code, stdout === ""], [exit, false], stderr);
      assert.match(
        stderr,
        new RegExp(`not verified: .*needs the wrapping key ${id}; .*"A lost wrapping key" in docs/`),
      );
    }
  }
  const { stdout: events } = await runCli(t, ["events", ...gone]);
  assert.match(events, /announced/);
  const unread = await refused(t, gone);
  for (const says of [gone.at(-1) ?? "", `needs the wrapping key ${id}`]) assert.ok(unread.includes(says), unread);
});

test("lists two processes with the same name separately, such as a killed one and its replacement", async (t) => {
  const data = await dataOf(t);
  for (let start = 0; start < 2; start += 1) await startService(t, ["--data", data, "--replica-name", "vm"]);
  const { stdout } = await runCli(t, ["replicas", "--data", data]);
  const [, one = "", other = ""] = /\nvm \((\w{8})\) .*\nvm \((\w{8})\) .*\n/.exec(stdout) ?? [];
  assert.ok(one !== "" && other !== "" && one !== other, stdout);
});

test("the startup banner reports an active key that cannot be opened", async (t) => {
  const vault = await vaultStub("hvs.only-for-this-test");
  t.after(() => vault.close());
  const folder = await temporaryFolder(t);
  const signers = join(folder, "signers.json");
  await writeFile(signers, JSON.stringify({ vaultTransit: { mount: `${vault.url}/transit` } }));
  const there = ["--data", join(folder, "data"), "--signers", signers];
  // Key services read their credentials from the process's environment.
  process.env["VAULT_TOKEN"] = "hvs.only-for-this-test";
  await cliDone(t, ["keys", "import", "--signer", vault.add("first"), "--kid", "first", ...there]);
  vault.fail("read", { status: 503, json: { errors: ["sealed"] } }, 1_000);
  assert.equal(
    (await startService(t, [...there, "--signer-type", "vault-transit"])).stateText,
    "active, but cannot be opened by this process",
  );
});

test(
  "on a read-only disk, read-only commands work, and all other commands fail and name the cause",
  { skip },
  async (t) => {
    const data = await dataOf(t);
    await (await startService(t, ["--data", data])).stop();
    const run = (...args: readonly string[]) => {
      const [program, ...first] = mounted(toReadOnly, data);
      const env = withoutSettings(process.env);
      return spawnSync(program, [...first, ...cliCommand, ...args, "--data", data], { encoding: "utf8", env });
    };
    const read = run("token", "--aud", "api");
    assert.deepEqual([read.status, read.stdout !== ""], [0, true], read.stderr);
    const { status, stderr, stdout } = run("rotate");
    assert.deepEqual([status, stdout], [1, ""]);
    assert.match(stderr, /cannot be written \(the file system is read-only, EROFS\).*\[ERR_STORE_READ_ONLY\]/);
  },
);
