import assert from "node:assert/strict";
import { chmod, mkdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { ecKey, named, withoutPrivate } from "../support/keys.ts";
import { getOnce, kidsIn, startLoad } from "../support/load.ts";
import { type LogLine, type RunningService, keySetText, startService, temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import type { WireReply } from "../support/wire.ts";

const timeout = 180_000;
const mode = 0o600;

const isWarning = ({ level }: LogLine): boolean => level === 40;
const isReload = ({ msg }: LogLine): boolean => msg === "keys reloaded";
const write = (file: string, text: string) => (): Promise<void> => writeFile(file, text, { mode });
const versionFolder = (version: number): string => `..2026_11_20_${version}`;
const setText = (...keys: readonly object[]): string => JSON.stringify({ keys });
const jwkText = (kid: string): string => JSON.stringify(named(kid));
const encryptionText = (...kids: readonly string[]): string =>
  setText(...kids.map((kid) => withoutPrivate(named(kid, ecKey(kid, "P-384")))));

describe("a reload", { timeout, concurrency: 4 }, () => {
  describe("publishes new keys", { concurrency: 2 }, () => {
    const rows: Readonly<Record<string, (file: string, text: string, service: RunningService) => Promise<unknown>>> = {
      "on SIGHUP": async (file, text, service) => {
        await writeFile(file, text, { mode });
        service.reload();
      },
      "when the file is rewritten": (file, text) => writeFile(file, text, { mode }),
      "when another file is renamed over it": async (file, text) => {
        await writeFile(`${file}.new`, text, { mode });
        await rename(`${file}.new`, file);
      },
      "when the file was missing for a while": async (file, text, service) => {
        await refused(service, "ERR_FILE_UNREADABLE", () => rm(file));
        await writeFile(file, text, { mode });
      },
    };
    for (const [name, change] of Object.entries(rows)) {
      test(name, async (t) => {
        const { service, file } = await serveFile(t, keySetText("one", "zero"));
        assert.equal(await servedKids(service), "one,zero");
        await reloaded(service, "two,one", () => change(file, keySetText("two", "one"), service));
        assert.deepEqual(service.log.at(-1)?.["kids"], ["two", "one"]);
      });
    }

    test("from a folder, sorted by file name in descending order, as files appear and disappear", async (t) => {
      const folder = await temporaryFolder(t);
      const put = (name: string, kid: string) => writeFile(join(folder, name), jwkText(kid), { mode });
      await put("2026-10.jwk", "october");
      // None of these is a key file, and the link is circular.
      await Promise.all([put(".2027.jwk", "hidden"), put("2027.jwk.tmp", "unfinished"), put("2027.txt", "other")]);
      await symlink(".", join(folder, "circle"));
      const service = await startService(t, ["--keys", folder]);
      const steps: readonly [change: () => Promise<unknown>, kids: string][] = [
        [() => put("2026-11.jwk", "november"), "november,october"],
        [() => put("2026-09.json", "september"), "november,october,september"],
        [() => rm(join(folder, "2026-10.jwk")), "november,september"],
        [() => rename(join(folder, "2026-11.jwk"), join(folder, "2026-08.jwk")), "september,november"],
        [() => put("2026-09.json", "other"), "other,november"],
      ];
      for (const [change, kids] of steps) await reloaded(service, kids, change);
    });
  });

  describe("a secret mounted by Kubernetes", { concurrency: 2 }, () => {
    // All three have the same size, so that the size does not reveal the change.
    const rows: readonly [as: string, keys: string, versions: readonly Record<string, string>[], kids: string[]][] = [
      ["a file", "keys.json", ["one", "two", "six"].map((kid) => ({ "keys.json": keySetText(kid) })), ["two", "six"]],
      [
        "a folder",
        "",
        [
          { "1.jwk": jwkText("one") },
          { "1.jwk": jwkText("one"), "2.jwk": jwkText("two") },
          { "1.jwk": jwkText("six"), "2.jwk": jwkText("two") },
        ],
        ["two,one", "two,six"],
      ],
    ];
    for (const [as, keys, [first = {}, ...versions], kids] of rows) {
      test(`as ${as}`, async (t) => {
        const folder = await temporaryFolder(t);
        await mountSecret(folder, 1, first);
        const service = await startService(t, ["--keys", join(folder, keys)]);
        for (const [index, files] of versions.entries())
          await reloaded(service, kids[index] ?? "", () => mountSecret(folder, index + 2, files));
      });
    }
  });

  describe("rejects invalid keys with the matching error code, keeps the old ones, and publishes valid ones afterwards", () => {
    const rows: readonly [name: string, text: string, code: string][] = [
      ["an empty file", "", "ERR_KEY_FORMAT"],
      ["no key", setText(), "ERR_KEYSET_EMPTY"],
      ["malformed JSON", keySetText("two").slice(0, -2), "ERR_KEY_FORMAT"],
      ["a key on P-384", setText(named("two", ecKey("two", "P-384"))), "ERR_KEY_NOT_P256"],
      ["a duplicate kid", setText(named("two"), named("two", ecKey("three"))), "ERR_KID_DUPLICATE"],
      ["a duplicate key", setText(named("two"), named("three", ecKey("two"))), "ERR_KEY_DUPLICATE"],
      ["a public key only", setText(withoutPrivate(named("two"))), "ERR_PRIVATE_KEY_MISSING"],
      ["halves of two keys", setText({ ...named("two"), d: ecKey("three").d }), "ERR_KEY_MISMATCH"],
      ["a valid key and an octet key", setText(named("two"), { kty: "oct", k: "AA" }), "ERR_KEY_UNSUPPORTED"],
    ];

    test("from a file", async (t) => {
      const { service, file } = await serveFile(t, keySetText("one", "zero"));
      for (const [name, text, code] of rows) {
        await t.test(name, () =>
          refused(service, code, async () => {
            await writeFile(file, text, { mode });
            service.reload();
          }),
        );
      }
      await reloaded(service, "good", () => writeFile(file, keySetText("good"), { mode }));
    });

    test("at startup", async (t) => {
      const file = join(await temporaryFolder(t), "keys.json");
      await writeFile(file, keySetText("one").replace("P-256", "P-999"), { mode });
      await assert.rejects(startService(t, ["--keys", file]), { code: "ERR_KEY_UNSUPPORTED" });
    });
  });

  test("handles signing keys and encryption keys separately", async (t) => {
    const folder = await temporaryFolder(t);
    const [keys, encryptionKeys] = [join(folder, "keys.json"), join(folder, "encryption.json")];
    await write(keys, keySetText("one"))();
    await write(encryptionKeys, encryptionText("e1"))();
    const service = await startService(t, ["--keys", keys, "--encryption-keys", encryptionKeys]);
    assert.equal(await servedKids(service), "one,e1");
    await reloaded(service, "one,e2,e1", write(encryptionKeys, encryptionText("e2", "e1")));
    await reloaded(service, "two,one,e2,e1", write(keys, keySetText("two", "one")));
    await refused(service, "ERR_KEY_UNSUPPORTED", write(encryptionKeys, "{}"));
    await refused(service, "ERR_KID_DUPLICATE", write(encryptionKeys, encryptionText("two")));
    await reloaded(service, "two,one,e3", write(encryptionKeys, encryptionText("e3")));
  });

  test("warns about a private key file that other users can read, and says how to fix it", async (t) => {
    const { service, file } = await serveFile(t, keySetText("one"));
    assert.equal(service.log.some(isWarning), false);
    for (const octal of ["644", "640", "604"]) {
      const from = service.log.length;
      await chmod(file, octal);
      const { msg } = await service.logged(isWarning, from);
      const hint = `fix it with: chmod 600 ${file}`;
      assert.equal(msg, `users other than the owner can read ${file} (mode 0${octal}); ${hint}`);
      await service.logged(isReload, from);
    }
    const from = service.log.length;
    await chmod(file, "600");
    await service.logged(isReload, from);
    assert.equal(service.log.slice(from).some(isWarning), false);
  });

  const reloads = soak(50, 10);
  test(`serves only complete documents, each with its own ETag, through ${reloads} reloads`, async (t) => {
    const { service, file } = await serveFile(t, keySetText("0"));
    let published: readonly string[] = ["0"];
    const check = (reply: WireReply): void => assert.ok(published.includes(kidsIn(reply).join()), reply.body);
    const load = startLoad(service.port, { kept: 4, fresh: 2, check });
    for (let version = 1; version <= reloads; version++) {
      const kids = Array.from({ length: 1 + (version % 7) }, (_, index) => String(version + index)).join();
      published = [...published.slice(-1), kids];
      const from = service.log.length;
      // Renamed into place, because a half-written file would be read and refused.
      await writeFile(`${file}.new`, keySetText(...kids.split(",")), { mode });
      await rename(`${file}.new`, file);
      service.reload();
      await service.logged((line) => line.msg === "keys reloaded" && String(line["kids"]) === kids, from);
      assert.equal(await servedKids(service), kids);
      await load.answers(10);
    }
    const { answered, cut, refused } = await load.stop();
    assert.deepEqual({ cut, refused }, { cut: [], refused: 0 });
    t.diagnostic(`${answered} requests answered`);
  });
});

/** Starts a service with one key file. */
async function serveFile(
  t: Parameters<typeof startService>[0],
  text: string,
): Promise<{ service: RunningService; file: string }> {
  const file = join(await temporaryFolder(t), "keys.json");
  await writeFile(file, text, { mode });
  return { service: await startService(t, ["--keys", file]), file };
}

async function servedKids({ port }: RunningService): Promise<string> {
  return kidsIn(await getOnce(port)).join();
}

/** Changes the keys and waits until they are served. A change in several steps may be seen in several steps. */
async function reloaded(service: RunningService, kids: string, change: () => Promise<unknown>): Promise<void> {
  let from = service.log.length;
  await change();
  do {
    const line = await service.logged(({ msg }) => msg === "keys reloaded", from);
    from = service.log.indexOf(line) + 1;
  } while ((await servedKids(service)) !== kids);
}

/** Changes the keys, waits until they are refused for this reason, and checks that the old ones are still served. */
async function refused(service: RunningService, code: string, change: () => Promise<unknown>): Promise<void> {
  const from = service.log.length;
  const before = await getOnce(service.port);
  await change();
  const line = await service.logged((line) => line["code"] === code, from);
  assert.equal(line.level, 50);
  assert.match(line.msg, /^the old keys remain in use, because the new ones were rejected: ./);
  assert.equal((await getOnce(service.port)).body, before.body);
}

/** Mounts a secret like the kubelet: each version is a folder, `..data` points to the current one, and each file is a link through `..data`. */
async function mountSecret(folder: string, version: number, files: Readonly<Record<string, string>>): Promise<void> {
  await mkdir(join(folder, versionFolder(version)));
  for (const [name, text] of Object.entries(files)) {
    await writeFile(join(folder, versionFolder(version), name), text, { mode });
  }
  await symlink(versionFolder(version), join(folder, "..data_tmp"));
  await rename(join(folder, "..data_tmp"), join(folder, "..data"));
  for (const name of Object.keys(files)) {
    await symlink(join("..data", name), join(folder, name)).catch((error: NodeJS.ErrnoException) =>
      assert.equal(error.code, "EEXIST"),
    );
  }
  await rm(join(folder, versionFolder(version - 1)), { recursive: true, force: true });
}
