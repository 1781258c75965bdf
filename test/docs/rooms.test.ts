import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { base, rooms } from "../../rooms.ts";

const root = resolve(import.meta.dirname, "../..");
const packages = [...new Set(Object.values(rooms).flatMap(({ packages }) => packages))];

/** Of what is not imported as a whole. */
const parts: Readonly<Record<string, string>> = { "node:": "node:fs", jose: "jose/key/import" };

/** What a file of a room could import: every room, every package. */
const targets = [
  ...Object.keys(rooms).map((room) => ({ room, name: room, specifier: `${room}/x.ts` })),
  ...packages.map((name) => ({ room: undefined, name, specifier: parts[name] ?? name })),
];

const fileOf = (from: string, to: string): string => `src/${from}/to_${to.replaceAll(/\W/g, "_")}.ts`;

describe("the linter holds the rooms apart", () => {
  let folder: string;
  let flagged: ReadonlySet<string>;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "jwksd-rooms-"));
    for (const name of ["oxlint.config.ts", "rooms.ts", "package.json"])
      await copyFile(join(root, name), join(folder, name));
    await symlink(join(root, "node_modules"), join(folder, "node_modules"));
    for (const from of Object.keys(rooms)) {
      const up = "../".repeat(from.split("/").length);
      for (const { room, name, specifier } of targets) {
        const file = join(folder, fileOf(from, name));
        await mkdir(dirname(file), { recursive: true });
        await writeFile(
          file,
          `import { x } from "${room === undefined ? specifier : up + specifier}";\nexport const y = x;\n`,
        );
      }
    }
    for (const name of base) await writeFile(join(folder, `src/${name}.ts`), `export { x } from "./jwk/x.ts";\n`);
    const oxlint = join(root, "node_modules/.bin/oxlint");
    const { stdout } = await promisify(execFile)(oxlint, ["--format", "json", "src"], {
      cwd: folder,
      maxBuffer: 2 ** 26,
    }).catch((error: { stdout: string }) => error);
    const { diagnostics } = JSON.parse(stdout) as { diagnostics: { code: string; filename: string }[] };
    const forbidden = diagnostics.filter(({ code }) => code.includes("no-restricted-imports"));
    flagged = new Set(forbidden.map(({ filename }) => filename));
  });
  after(() => rm(folder, { recursive: true }));

  for (const [from, { rooms: mayImport, packages: mayUse }] of Object.entries(rooms)) {
    test(from, () => {
      const refused = targets.filter(({ name }) => flagged.has(fileOf(from, name))).map(({ name }) => name);
      const allowed = new Set([from, ...mayImport, ...mayUse]);
      assert.deepEqual(
        refused,
        targets.filter(({ name }) => !allowed.has(name)).map(({ name }) => name),
      );
    });
  }

  test("every folder and file of src/ is in the list", async () => {
    const entries = await readdir(join(root, "src"), { withFileTypes: true });
    const folders = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
    assert.deepEqual(
      folders.sort(),
      Object.keys(rooms)
        .filter((name) => !name.includes("/"))
        .sort(),
    );
    const files = entries.filter(({ name }) => name.endsWith(".ts")).map(({ name }) => name.replace(".ts", ""));
    assert.deepEqual(files.sort(), [...base, "executable", "index", "open-signer"].sort());
  });

  test("in the picture of CONTRIBUTING.md, a room builds on its own line and those below", async () => {
    const [, picture = ""] =
      /^```text\n(command line .*?)^```$/ms.exec(await readFile(join(root, "CONTRIBUTING.md"), "utf8")) ?? [];
    const lines = picture.trim().split("\n");
    const level = (room: string): number => lines.findIndex((line) => line.split(/  +/).includes(room));
    for (const [from, { rooms: below }] of Object.entries(rooms)) {
      const [name = ""] = from.split("/");
      assert.ok(level(name) >= 0, name);
      for (const room of below.filter((room) => !room.includes("/")))
        assert.ok(level(room) >= level(name), `${name}, ${room}`);
    }
  });

  test("what every room builds on", () => {
    assert.deepEqual(
      base.filter((name) => !flagged.has(`src/${name}.ts`)),
      [],
    );
  });
});
