// Commands on a store that was written by an attacker, or that has no issuer yet.

import assert from "node:assert/strict";
import { access, chmod, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import * as jose from "jose";
import { type StoreDocument, parseDocument } from "../../src/rotation/custody/document.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import { type KeyRecord, type LiveRecord, mapLive } from "../../src/rotation/rules/key-records.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { ecKey, named, withoutPrivate } from "../support/keys.ts";
import { newWrappingKey } from "../support/managed.ts";
import { type Finished, runCli, startService, temporaryFolder, cliRefused } from "../support/service.ts";

const timeout = 120_000;
const isSupported = process.platform === "linux";

/** Prepares a store with one active key, `first`, and functions that run commands on it. */
async function setUp(t: TestContext, ...flags: readonly string[]) {
  const folder = await temporaryFolder(t);
  const data = join(folder, "data");
  const path = join(data, "keys.db");
  const run = (...args: string[]): Promise<Finished> => runCli(t, [...args, "--data", data]);
  const ok = async (...args: string[]): Promise<Finished> => {
    const finished = await run(...args);
    assert.equal(finished.code, 0, finished.stderr);
    return finished;
  };
  const refused = async (code: string, ...args: string[]): Promise<string> => {
    const before = await textIn(path);
    const { code: exit, stdout, stderr } = await run(...args);
    assert.deepEqual([exit, stdout], [1, ""], stderr);
    assert.match(stderr, new RegExp(`\\[${code}\\]\\n$`));
    assert.deepEqual(await textIn(path), before, "a refusal changes nothing");
    return stderr;
  };
  const file = join(folder, "first.json");
  await writeFile(file, JSON.stringify(named("first")));
  await ok("keys", "import", file, ...flags);
  return { folder, data, path, run, ok, refused };
}

/** Reads the stored document. */
async function textIn(path: string): Promise<string> {
  const store = sqliteStore(path);
  const { text = "" } = await store.read();
  await store.close?.();
  return text;
}

/** Writes to the store, as anyone with write access can. */
async function write(path: string, text: string): Promise<void> {
  const store = sqliteStore(path);
  assert.equal(await store.write(text, (await store.read()).version), true);
  await store.close?.();
}

const evil: KeyRecord = {
  kid: "evil",
  use: "sig",
  alg: "ES256",
  state: "retiring",
  thumbprint: await jose.calculateJwkThumbprint(withoutPrivate(ecKey("evil"))),
  announcedAt: Date.now(),
  activatedAt: Date.now(),
  retiredAt: Date.now(),
  publicJwk: withoutPrivate(ecKey("evil")) as unknown as LiveRecord["publicJwk"],
  privateHalf: { uri: "pkcs11:token=evil;object=evil" },
};

/** Changes the stored document but not its MAC. Returns the previous document. */
async function attack(
  path: string,
  change = ({ records }: StoreDocument): Partial<StoreDocument> => ({ records: [...records, evil] }),
): Promise<string> {
  const original = await textIn(path);
  const [mac = ""] = original.split("\n", 1);
  const document = parseDocument(unsealed(original));
  await write(path, `${mac}\n${JSON.stringify({ ...document, ...change(document) })}`);
  return original;
}

const verified = (text: string): unknown => (JSON.parse(text) as { verified: unknown }).verified;

const tokenOf = ({ stdout }: Finished): jose.JWTPayload => jose.decodeJwt(stdout.trim());

describe("a store written by an attacker", { timeout }, () => {
  test("is reported as not authentic, and no command changes it", async (t) => {
    const { folder, path, run, refused } = await setUp(t);
    await attack(path);
    for (const args of [["keys"], ["plan"]]) {
      const { code, stdout, stderr } = await run(...args);
      assert.equal(code, 1);
      assert.match(
        stderr,
        /^jwksd: this output is not verified: the stored document is not authentic \(.*\[ERR_STORE_NOT_AUTHENTIC\]$/m,
      );
      assert.match(stdout, /first/);
    }
    assert.equal(verified((await run("keys", "--json")).stdout), false);
    const out = join(folder, "out.jwk");
    for (const args of [
      ["token", "--aud", "api"],
      ["serve", "--port", "0", "--admin", "off"],
      ["rotate"],
      ["rotate", "--dry-run"],
      ["keys", "revoke", "first", "--yes"],
      ["keys", "revoke", "first", "--yes", "--lost-wrapping-key"],
      ["keys", "remove", "evil", "--force", "--yes"],
      ["keys", "announce", "--use", "enc"],
      ["keys", "export"],
      ["keys", "export", "first", "--private", "--out", out, "--yes"],
      ["keys", "destroy", "evil", "--yes"],
    ]) {
      await refused("ERR_STORE_NOT_AUTHENTIC", ...args);
    }
    await assert.rejects(access(out));
  });

  test("can be accepted by an operator who knows every key in it", async (t) => {
    const { path, run, ok, refused } = await setUp(t);
    await attack(path);
    const { code, stderr } = await run("keys", "rewrap");
    assert.equal(code, 1);
    assert.match(
      stderr,
      /nothing was changed; if you recognize each of these keys .*--yes.*:\n- first, sig active\n- evil, sig retiring, in pkcs11:token=evil;object=evil\n.*\[ERR_CONFIRMATION\]\n$/s,
    );
    assert.match((await ok("keys", "rewrap", "--yes", "--dry-run")).stdout, /^Dry run: nothing was changed\./);
    await refused("ERR_STORE_NOT_AUTHENTIC", "rotate");
    const told = await ok("keys", "rewrap", "--yes");
    assert.match(told.stderr, /not verified: .*\n- evil/s);
    assert.match(told.stdout, /^rewrapped sig first: .*\nrewrapped sig evil: /m);
    await ok("rotate");
    assert.equal(verified((await ok("keys", "--json")).stdout), true);
  });
});

describe("unverified output is marked as such", { timeout }, () => {
  test("and a document that cannot be shown is refused", async (t) => {
    const { data, path, refused } = await setUp(t);
    await rename(join(data, "wrapping.key"), join(data, "away"));
    const event = { number: 1, at: 0, type: "removed", reason: "" } as const;
    const changes: readonly object[] = [
      { events: [{ ...event, at: "then" }] },
      { events: [{ ...event, reason: undefined }] },
      { events: [{ ...event, kid: 1 }] },
      { targets: [{ name: "a", revision: 1, at: 1e300 }] },
      { targets: [{ name: 1, revision: 1, at: 0 }] },
    ];
    for (const change of changes) {
      const original = await attack(path, () => change);
      for (const command of ["events", "replicas"]) await refused("ERR_RECORDS_INVALID", command);
      await write(path, original);
    }
  });

  test("if the wrapping key is missing", async (t) => {
    const { data, run, ok } = await setUp(t);
    for (const args of [["keys"], ["plan"]]) {
      const { stdout, stderr } = await ok(...args, "--json");
      assert.deepEqual([verified(stdout), /not verified/.test(stderr)], [true, false]);
    }
    assert.equal((await ok("events")).stderr, "");
    await rename(join(data, "wrapping.key"), join(data, "away"));
    for (const args of [["keys"], ["plan"], ["replicas"], ["policy"]]) {
      const { stdout, stderr } = await ok(...args, "--json");
      assert.equal(verified(stdout), false);
      assert.match(
        stderr,
        /^jwksd: this output is not verified: the wrapping key is missing .* needs the wrapping key \S{43};/,
      );
    }
    const { code, stderr } = await run("keys", "export");
    assert.equal(code, 1);
    assert.match(stderr, /\[ERR_WRAPPING_KEY_MISSING\]\n$/);
    const wrong = await runCli(t, ["keys", "--data", data], { JWKSD_WRAPPING_KEYS: newWrappingKey() });
    assert.equal(wrong.code, 1);
    assert.match(wrong.stderr, /this output is not verified: .*\[ERR_WRAPPING_KEY_MISSING\]/);
  });
});

describe("a store", { timeout }, () => {
  test("that has no MAC and keeps all its keys in an HSM must be accepted by an operator", async (t) => {
    const { path, ok, refused } = await setUp(t);
    const privateHalf = { uri: "pkcs11:token=a;object=b" };
    await attack(path, ({ records }) => ({ records: mapLive(records, (record) => ({ ...record, privateHalf })) }));
    await write(path, `\n${unsealed(await textIn(path))}`);
    await refused("ERR_STORE_NOT_AUTHENTIC", "keys", "announce", "--use", "enc");
    await refused("ERR_STORE_NOT_AUTHENTIC", "keys", "export");
    await ok("keys", "rewrap", "--yes");
    await ok("keys", "export");
  });
});

describe("a store created without an issuer", { timeout }, () => {
  test("uses the origin at which it was last served until `jwksd serve --issuer` sets an issuer, and belongs to that issuer from then on", async (t) => {
    const data = join(await temporaryFolder(t), "data");
    const run = (...args: string[]): Promise<Finished> => runCli(t, [...args, "--data", data]);
    const first = await startService(t, ["--data", data]);
    const here = new URL(first.jwksUri).origin;
    for (const flags of [[], ["--issuer", here]]) {
      assert.equal(tokenOf(await run("token", "--aud", "api", ...flags)).iss, here, flags.join(" "));
    }
    await first.stop();
    assert.equal(tokenOf(await run("token", "--aud", "api")).iss, here, "even after it has been decommissioned");
    const login = "https://login.example.com";
    for (const args of [["token", "--aud", "api"], ["rotate"], ["keys"]]) {
      const { code, stderr } = await run(...args, "--issuer", login);
      assert.equal(code, 1);
      assert.match(
        stderr,
        new RegExp(
          `no issuer yet \\(they were last served as "${here}"\\), but this process is configured for issuer "${login}"; omit --issuer, or .* with jwksd serve --issuer ${login} or jwksd keys rewrap --issuer ${login} \\[ERR_STORE_ISSUER\\]\n$`,
        ),
      );
    }

    const second = await startService(t, ["--data", data, "--issuer", login]);
    assert.deepEqual(
      second.log.filter(({ msg }) => msg === "key rewrapped").map(({ reason }) => reason),
      [`the issuer "${login}" was chosen`],
    );
    for (const flags of [[], ["--issuer", login]]) {
      assert.equal(tokenOf(await run("token", "--aud", "api", ...flags)).iss, login);
    }
    const { stdout, code } = await run("rotate");
    assert.equal(code, 0, stdout);
    await second.stop();
    const third = await startService(t, ["--data", data, "--issuer", login]);
    assert.equal(third.log.filter(({ msg }) => msg === "key rewrapped").length, 0);
  });

  test("can also be given an issuer by the rewrap command, but only once", async (t) => {
    const { ok, refused } = await setUp(t);
    await ok("keys", "rewrap", "--issuer", "https://a.example");
    assert.equal(tokenOf(await ok("token", "--aud", "api")).iss, "https://a.example");
    await refused("ERR_STORE_ISSUER", "keys", "rewrap", "--issuer", "https://b.example", "--yes");
    await refused("ERR_STORE_ISSUER", "token", "--aud", "api", "--issuer", "http://127.0.0.1:9900");
  });
});

describe("files", { timeout, skip: !isSupported }, () => {
  test("every command warns about a store that other users can write to or replace", async (t) => {
    const { folder, data, path, ok } = await setUp(t);
    const warnings = async (): Promise<string[]> =>
      (await ok("keys")).stderr.split("\n").flatMap((line) => / warn (.*) store=/.exec(line)?.[1] ?? []);
    assert.deepEqual(await warnings(), []);
    const rows: [name: string, mode: number, isWarned: boolean][] = [
      [path, 0o620, true],
      [data, 0o777, true],
      [data, 0o770, true],
      [data, 0o1777, true],
      [data, 0o755, false],
      [folder, 0o777, true],
      [folder, 0o1777, false],
    ];
    for (const [name, mode, isWarned] of rows) {
      await chmod(name, mode);
      const told = `users other than the owner can write to ${name} (mode 0${mode.toString(8)}) and change or replace the store; keep the store in its own folder, or fix this with: chmod go-w ${name}`;
      assert.deepEqual(await warnings(), isWarned ? [told] : [], `${name} ${mode.toString(8)}`);
      await chmod(name, 0o700);
    }
  });

  test("the serve and keygen commands exit immediately if a folder cannot be created", async (t) => {
    for (const args of [
      ["serve", "--data", "/proc/x", "--port", "0", "--admin", "off"],
      ["serve", "--store", "sqlite:/proc/x/y/keys.db", "--port", "0", "--admin", "off"],
      ["keygen", "--out", "/proc/x/y/key.jwk"],
    ]) {
      assert.match(
        await cliRefused(t, args),
        /cannot (create the data folder|write) \/proc\/x.* \(ENOENT\).*\[ERR_FILE_UNWRITABLE\]\n$/,
      );
    }
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, "a"));
    const { code } = await runCli(t, ["keygen", "--out", join(folder, "a", "b", "c", "key.jwk")]);
    assert.equal(code, 0);
    await readFile(join(folder, "a", "b", "c", "key.jwk"));
  });
});
