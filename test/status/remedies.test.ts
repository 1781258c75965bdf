import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { commandFlags, guideUrl, remedyOf, shellWord } from "../../src/service/admin/remedies.ts";
import { variableName } from "../../src/service/config/setting-definitions.ts";
import { resolveSettings } from "../../src/service/config/settings.ts";

test("a shell takes a word as it is, whatever is in it", () => {
  const texts = [
    "plain-1",
    "-rf",
    "a b",
    "it's",
    "$(touch x)",
    "`id`",
    "a;b|c&d>e",
    '"',
    "\\",
    "~",
    "a\nb",
    "käse",
    "*",
    "!!",
  ];
  const printed = execFileSync("sh", ["-c", `printf '%s\\0' ${texts.map(shellWord).join(" ")}`], { encoding: "utf8" });
  assert.deepEqual(printed.split("\0").slice(0, -1), texts);
  assert.deepEqual(["plain-1", "pkcs11:a=b"].map(shellWord), ["plain-1", "pkcs11:a=b"]);
});

test("what is said of a store depends on what it has done", () => {
  const codes = ["ERR_STORE_EMPTY", "ERR_RECORDS_INVALID", "ERR_STORE_NOT_AUTHENTIC", "ERR_WRAPPING_KEY_MISSING"];
  assert.deepEqual(
    codes.map((code) => remedyOf(code).guide),
    ["the-store-is-lost", "the-store-is-lost", "a-store-that-is-not-authentic", "a-lost-wrapping-key"].map(
      (section) => `emergencies.md#${section}`,
    ),
  );
});

test("each section that a fault leads to is there", async () => {
  const sources = ["remedies", "faults"].map((name) => readFile(`src/service/admin/${name}.ts`, "utf8"));
  const guides = [...(await Promise.all(sources)).join("\n").matchAll(/guide: "([^"]+)"/g)];
  assert.ok(guides.length > 10);
  for (const [, guide = ""] of guides) {
    const [page = "", section] = guide.split("#");
    const text = await readFile(`docs/${page}`, "utf8");
    const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) =>
      title.toLowerCase().replaceAll(" ", "-"),
    );
    assert.ok(section === undefined || headings.includes(section), guide);
    assert.ok(URL.canParse(guideUrl(guide)));
  }
});

test("a command finds the store of the service, and no password is on its command line", async () => {
  const rows = [
    [{ data: "/srv/my keys" }, "--data '/srv/my keys'"],
    [{ store: "sqlite:/srv/k.db", wrappingKeyFile: "/w" }, "--store sqlite:/srv/k.db --wrapping-key-file /w"],
    [{ store: "postgres://u@h/d", issuer: "https://a.example" }, "--store postgres://u@h/d --issuer https://a.example"],
    [{ store: "postgres://u:secret@h/d", issuer: "https://a.example" }, "--issuer https://a.example"],
  ] as const;
  for (const [given, said] of rows) {
    const environment = Object.fromEntries(Object.entries(given).map(([name, value]) => [variableName(name), value]));
    assert.equal(commandFlags(await resolveSettings({ flags: {}, environment })), said);
  }
});
