import assert from "node:assert/strict";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { readEncryptionKeyset, readKeyset } from "../../src/library/node/index.ts";
import { permissionWarnings } from "../../src/library/node/key-files.ts";
import { ecKey, named } from "../support/keys.ts";
import { temporaryFolder } from "../support/service.ts";
import { refusal } from "../support/refusal.ts";

test("two files with one key are refused by the names of both", async (t) => {
  const folder = await temporaryFolder(t);
  for (const name of ["2026-01.jwk", "2026-02.jwk"]) await writeFile(join(folder, name), JSON.stringify(ecKey("a")));
  const error = await refusal(() => readKeyset(folder), "ERR_KEY_DUPLICATE");
  assert.match(error.message, /2026-02\.jwk and .*2026-01\.jwk/);
});

test("a folder without a key file is refused with the command that makes one", async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, "README.md"), "");
  const error = await refusal(() => readKeyset(folder), "ERR_NO_KEY_FILES");
  assert.match(error.message, /jwksd keygen --out .*\/\d{4}-\d\d-\d\d\.jwk/);
});

test("exp of an encryption key becomes notAfter", async (t) => {
  const file = join(await temporaryFolder(t), "keys.json");
  await writeFile(file, JSON.stringify({ keys: [{ ...named("e"), use: "enc", exp: 1_900_000_000 }] }), { mode: 0o600 });
  const { entries, warnings } = await readEncryptionKeyset(file);
  assert.deepEqual(
    entries.map(({ kid, notAfter }) => ({ kid, notAfter })),
    [{ kid: "e", notAfter: new Date(1_900_000_000_000) }],
  );
  assert.deepEqual(warnings, []);
});

test("a folder into which others may put keys is reported", async (t) => {
  const folder = join(await temporaryFolder(t), "keys");
  await mkdir(folder);
  await writeFile(join(folder, "a.jwk"), JSON.stringify(ecKey("a")), { mode: 0o600 });
  await chmod(folder, 0o777);
  const { warnings } = await readKeyset(folder);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? "", /users other than its owner can write.*chmod go-w/);
  await chmod(folder, 0o755);
  assert.deepEqual((await readKeyset(folder)).warnings, []);
});

const warns = (uid: number, mode: number): boolean =>
  permissionWarnings("f", { uid, mode, isFile: () => true }).length > 0;

test("a secret is for its owner; a process of another user may read a file of root by its group", (t) => {
  t.mock.method(process as { getuid(): number }, "getuid", () => 65_532);
  const rows = [
    [0, 0o440, false],
    [0, 0o640, false],
    [0, 0o444, true],
    [0, 0o660, true],
    [65_532, 0o600, false],
    [65_532, 0o440, true],
  ] as const;
  for (const [uid, mode, expected] of rows) assert.equal(warns(uid, mode), expected, `${uid} ${mode.toString(8)}`);
});
